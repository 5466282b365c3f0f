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

// formatTag is a part of every fingerprint. Change it when the code below, content.go or canonical_json.go computes another fingerprint
// for the same request.
const formatTag = "http-2"

// Config says what is compared in addition to method, path, query and preconditions. Its fields are those of httpmw.IdempotencyConfig.
type Config struct {
	Exclude    []string                                           // JSON pointers to members that are not compared
	APIVersion func(*http.Request) string                         // nil: no version is compared
	Own        func(r *http.Request, body []byte) ([]byte, error) // returns the bytes to compare in place of the body; nil: its meaning is compared
	MaxBody    int64                                              // bytes; negative: no limit
}

// Printer makes the fingerprints of requests: requests with equal fingerprints are retries of each other. It ignores the order of query parameters,
// form fields and JSON members, white space in JSON, the boundary of multipart bodies, compression, and the case of media types.
type Printer struct {
	tag     string
	exclude pointers
	version func(*http.Request) string
	own     func(*http.Request, []byte) ([]byte, error)
	limit   int64
}

// New returns a printer. A tag made from the configuration is a part of its fingerprints, see formatTag: a deployment that changes the configuration
// must not refuse retries of earlier requests. The error names a pointer of Exclude that cannot be parsed.
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

// Of returns the fingerprint of a request. body is its body, which r has as well. The error is that of Config.Own.
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
	// The parts are hashed with their lengths, so no two lists of parts look alike.
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

// preconditions returns the name and the value of each precondition header. Repeated lines are joined with commas, as proxies join them.
func preconditions(h http.Header) (parts [][]byte) {
	for _, name := range PreconditionHeaders() {
		if lines := h.Values(name); len(lines) > 0 {
			parts = append(parts, []byte(name), []byte(strings.Join(lines, ", ")))
		}
	}
	return parts
}

// query returns the query parameters, sorted by name. A query that cannot be parsed is compared as it is.
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
