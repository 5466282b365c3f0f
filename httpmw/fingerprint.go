package httpmw

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

// fingerprintTag changes with whatever follows in this file, in content.go and in canonical_json.go.
const fingerprintTag = "http-2"

// fingerprinter tells requests apart that are not retries of each other: by method, path, query, content type, body and
// preconditions.
// What clients and proxies write in different ways for the same thing makes no difference: the order of query
// parameters, of the fields of a form and of JSON members, white space in JSON, the boundary between parts, compression, the case of a media type.
type fingerprinter struct {
	tag     string
	exclude pointers                   // members that make no difference either
	version func(*http.Request) string // makes a difference as well; may be nil
	own     FingerprintFunc            // what is compared in place of the body; may be nil
	limit   int64                      // of a body, in bytes; negative: none
}

// newFingerprinter gives each configuration a tag of its own: a deployment that changes it must not refuse the retries
// of requests that came before.
func newFingerprinter(c *IdempotencyConfig) (*fingerprinter, error) {
	exclude := c.Exclude
	f := &fingerprinter{tag: fingerprintTag, version: c.APIVersion, own: c.Fingerprint, limit: c.MaxBody}
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

// of returns the fingerprint, and the error of the service's own function. r has a body of its own.
func (f *fingerprinter) of(r *http.Request, body []byte) (idempotency.Fingerprint, error) {
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

// preconditionHeaders are those of RFC 9110, section 13.1, that count for methods which change something. The other two,
// If-Modified-Since and If-Range, have to be ignored there.
func preconditionHeaders() []string {
	return []string{"If-Match", "If-None-Match", "If-Unmodified-Since"}
}

// preconditions returns the name and the value of each precondition that the request has. Lines are joined as proxies join them.
func preconditions(h http.Header) (parts [][]byte) {
	for _, name := range preconditionHeaders() {
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
