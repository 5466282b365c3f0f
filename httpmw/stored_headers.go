package httpmw

import (
	"net/http"
	"slices"
	"strings"
)

// StoredHeaders lists the headers that are stored with an answer and sent again with each replay. A name that ends with * stands for all names that begin
// like it. A service adds its own by the field Headers of [IdempotencyConfig]. These headers say something
//
//   - about the body: Content-* but Content-Length, ETag, Last-Modified, Repr-Digest, Preference-Applied,
//     X-Content-Type-Options
//   - about the resource, and what may be done with it: Location, Link, Allow, Accept and Accept-*
//   - to caches: Cache-Control, Expires, Vary
//
// Cookies, dates, authentication challenges, rate limits and request ids belong to the first answer only.
func StoredHeaders() []string {
	return []string{
		"Accept", "Accept-*", "Allow", "Cache-Control", "Content-*", "Etag", "Expires", "Last-Modified", "Link", "Location",
		"Preference-Applied", "Repr-Digest", vary, "X-Content-Type-Options",
	}
}

const vary = "Vary"

// neverStored reports whether a header belongs to one connection, one moment or one caller, and so must not be replayed, even if it is configured.
func neverStored(name string) bool {
	switch name = http.CanonicalHeaderKey(name); name {
	case "Authorization", "Connection", "Content-Length", "Date", "Idempotent-Replayed", "Keep-Alive", "Set-Cookie", "Te",
		"Traceparent", "Tracestate", "Trailer", "Transfer-Encoding", "Upgrade", "Www-Authenticate", "X-Correlation-Id", "X-Request-Id":
		return true
	}
	return strings.HasPrefix(name, "Proxy-") || strings.HasPrefix(name, "Ratelimit") || strings.HasPrefix(name, "X-Ratelimit-")
}

// headerName reports whether name is a whole name of a header (RFC 9110, section 5.6.2). It is false for a pattern with *.
func headerName(name string) bool {
	return !strings.ContainsFunc(name, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("-_.", c)
	})
}

// headerNames is a set of header names and of beginnings of names.
type headerNames struct {
	whole      map[string]bool
	beginnings []string
}

func newHeaderNames(patterns []string) headerNames {
	names := headerNames{whole: map[string]bool{}}
	for _, pattern := range patterns {
		if beginning, ok := strings.CutSuffix(http.CanonicalHeaderKey(pattern), "*"); ok {
			names.beginnings = append(names.beginnings, beginning)
		} else {
			names.whole[http.CanonicalHeaderKey(pattern)] = true
		}
	}
	return names
}

// stored reports whether the header is replayed. Its name must be in canonical form.
func (h headerNames) stored(name string) bool {
	return !neverStored(name) && (h.whole[name] || slices.ContainsFunc(h.beginnings, func(b string) bool { return strings.HasPrefix(name, b) }))
}
