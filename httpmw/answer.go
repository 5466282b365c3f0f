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
}

// write sends it. Nobody can be told any more if that fails.
func (a *answer) write(w http.ResponseWriter) {
	header := w.Header()
	clear(header)
	maps.Copy(header, a.header)
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
