package httpmw

import (
	"mime"
	"strconv"
	"strings"
)

// The media types of JSON, plain and as of RFC 9457, and of forms.
const (
	mediaForm    = "application/x-www-form-urlencoded"
	mediaJSON    = "application/json"
	mediaProblem = "application/problem+json"
)

// wantsJSON tells whether an Accept header takes application/json and not problem+json, by its name or a wildcard.
func wantsJSON(accept []string) bool {
	wants := false
	for item := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		media, params, err := mime.ParseMediaType(item)
		if q, qErr := strconv.ParseFloat(params["q"], 64); err != nil || qErr == nil && q == 0 {
			continue
		}
		switch media {
		case mediaProblem, "application/*", "*/*":
			return false
		case mediaJSON:
			wants = true
		}
	}
	return wants
}
