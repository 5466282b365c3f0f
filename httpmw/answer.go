package httpmw

import (
	"maps"
	"net/http"
	"strconv"
)

// answer is a whole answer that can be sent.
type answer struct {
	status int
	header http.Header // all of them: it replaces what other middlewares have set, which it started from
	body   []byte
	// problem says that the body is one of this package, and JSON of the media type that the client asks for.
	problem bool
}

// write sends it. Nobody can be told any more if that fails.
func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	clear(header)
	maps.Copy(header, a.header)
	if a.problem && wantsJSON(r.Header.Values("Accept")) {
		header.Set("Content-Type", mediaJSON)
	}
	if bodyAllowed(a.status) {
		header.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	if len(a.body) > 0 {
		_, _ = w.Write(a.body) //nolint:gosec // the handler answers for what it wrote
	}
}

func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}
