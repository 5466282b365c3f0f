// Package fingerprint decides which requests are the same. It compares their meaning: different spellings that clients and proxies use for the same
// request do not count.
//
// Read first: printer.go:Printer.Of, then content.go:Printer.meaning and canonical_json.go:canonicalJSON.
package fingerprint

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/idempotency"
)

// formatTag must change when the code below, content.go or canonical_json.go changes a fingerprint.
const formatTag = "http-2"

// Config says what is compared besides method, path, query and preconditions. Its fields are those of httpmw.IdempotencyConfig.
type Config struct {
	Exclude    []string                                           // JSON pointers to members that make no difference
	APIVersion func(*http.Request) string                         // nil: none
	Own        func(r *http.Request, body []byte) ([]byte, error) // what is compared in place of the body; nil: its meaning
	MaxBody    int64                                              // bytes; negative: no limit
}

// Printer makes the fingerprints of requests: two requests with the same one are retries of each other. The order of query parameters, of
// the fields of a form and of JSON members, white space in JSON, the boundary between parts, compression, and the case of a media type make
// no difference.
type Printer struct {
	tag     string
	exclude pointers
	version func(*http.Request) string
	own     func(*http.Request, []byte) ([]byte, error)
	limit   int64
}

// New returns a printer with a tag of its own for each configuration: a deployment that changes it must not refuse the retries
// of requests that came before. An error names a pointer of Exclude that cannot be read.
func New(c Config) (*Printer, error) {
	exclude := c.Exclude
	f := &Printer{tag: formatTag, version: c.APIVersion, own: c.Own, limit: c.MaxBody}
	if len(exclude) == 0 && f.version == nil && f.own == nil {
		return f, nil
	}
	tree, err := parsePointers(exclude)
	if err != nil {
		return nil, err
	}
	f.exclude = tree
	exclude = slices.Compact(slices.Sorted(slices.Values(exclude)))
	sum := sha256.Sum256([]byte(strconv.FormatBool(f.version != nil) + strconv.FormatBool(f.own != nil) + strings.Join(exclude, "\n")))
	f.tag += "-" + hex.EncodeToString(sum[:4])
	return f, nil
}

// Of returns the fingerprint of a request, and the error of the service's own function. r has a body of its own, which is body.
func (f *Printer) Of(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
	var c content
	if f.own == nil {
		c = f.meaning(r.Header, body)
	} else {
		compared, err := f.own(r, body)
		if err != nil {
			return idempotency.Fingerprint{}, err
		}
		c = content{form: "own", body: compared}
	}
	parts := [][]byte{
		[]byte(r.Method), []byte(r.URL.EscapedPath()), []byte(query(r.URL)), []byte(c.media), []byte(c.form), c.body,
	}
	if f.version != nil {
		parts = append(parts, []byte(f.version(r)))
	}
	return idempotency.NewFingerprint(f.tag, append(parts, preconditions(r.Header)...)...), nil
}

// PreconditionHeaders returns the precondition headers of RFC 9110, section 13.1, that count for methods which change something. Such methods have
// to ignore the other two, If-Modified-Since and If-Range.
func PreconditionHeaders() []string {
	return []string{"If-Match", "If-None-Match", "If-Unmodified-Since"}
}

// preconditions returns the name and the value of each precondition that the request has. Lines are joined as proxies join them.
func preconditions(h http.Header) (parts [][]byte) {
	for _, name := range PreconditionHeaders() {
		if lines := h.Values(name); len(lines) > 0 {
			parts = append(parts, []byte(name), []byte(strings.Join(lines, ", ")))
		}
	}
	return parts
}

// query returns the parameters in the order of their names.
func query(u *url.URL) string {
	if u.RawQuery == "" {
		return ""
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return u.RawQuery
	}
	return values.Encode()
}
