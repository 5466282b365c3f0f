package httpmw

import (
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/oncebox/oncebox/idempotency"
)

// fingerprintTag changes with whatever follows in this file and in canonical_json.go.
const fingerprintTag = "http-1"

// fingerprint tells requests apart that are not retries of each other: by method, path, query, content type and body.
// What clients and proxies write in different ways for the same thing makes no difference: the order of query
// parameters and of JSON members, white space in JSON, the case of a media type.
func fingerprint(r *http.Request, body []byte) idempotency.Fingerprint {
	query := r.URL.RawQuery
	if values, err := url.ParseQuery(query); err == nil {
		query = values.Encode()
	}
	contentType, form := r.Header.Get("Content-Type"), "raw"
	media, params, err := mime.ParseMediaType(contentType)
	if err == nil {
		contentType = mime.FormatMediaType(media, params)
	}
	if media == "application/json" || strings.HasSuffix(media, "+json") {
		if canonical, ok := canonicalJSON(body); ok {
			body, form = canonical, "json"
		}
	}
	return idempotency.NewFingerprint(fingerprintTag, []byte(r.Method), []byte(r.URL.EscapedPath()), []byte(query),
		[]byte(contentType), []byte(form), body)
}
