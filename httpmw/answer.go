package httpmw

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// answer is a whole answer that can be sent.
type answer struct {
	status int
	header http.Header // all headers: it replaces the headers that other middlewares have set, of which it is a copy with changes
	body   []byte
	// problem is set for a refusal, whose body is made when it is sent.
	problem *Problem
	// silent says that the handler has written nothing to the recorder.
	silent bool
	// past says that nothing can be sent, because the handler has written an answer past the middleware.
	past bool
}

// write sends the answer. If that fails, nobody can be informed any more.
func (a *answer) write(w http.ResponseWriter) {
	header := w.Header()
	encoded := encodedOutside(w, a.header)
	clear(header)
	maps.Copy(header, a.header)
	switch {
	case encoded:
		header.Del("Content-Length")
	case bodyAllowed(a.status):
		header.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	if len(a.body) > 0 {
		_, _ = w.Write(a.body) //nolint:gosec // the handler answers for what it wrote
	}
}

// encodedOutside reports whether a middleware further out encodes the body, as compression does, and has said so in the headers of w before the
// handler began: then the length that is sent is not that of the body here, and the encoding is not that of the handler.
func encodedOutside(w http.ResponseWriter, of http.Header) bool {
	encoding := w.Header().Values("Content-Encoding")
	return len(encoding) > 0 && slices.Equal(encoding, of.Values("Content-Encoding"))
}

func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}
