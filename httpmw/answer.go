package httpmw

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// answer is a complete answer, ready to be sent.
type answer struct {
	status int
	header http.Header // all headers of the answer; it starts as a copy of the headers that other middlewares have set, and replaces them
	body   []byte
	// problem is set for a refusal, whose body is made when it is sent.
	problem *Problem
	// silent is set if the handler has written nothing to the recorder.
	silent bool
	// past is set if the handler has written its answer past the middleware, so that no other answer can be sent.
	past bool
}

// write sends the answer. An error of the connection is ignored, because nobody is left who could be informed.
func (a *answer) write(w http.ResponseWriter) {
	header := w.Header()
	encoded := encodedOutside(w, a.header)
	// The recorder began with a copy of these headers. What the handler has deleted there must not be sent.
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

// encodedOutside reports whether a middleware further out encodes the body, as a compression does, and has set the headers of w for that before the
// handler began. Then Content-Length and Content-Encoding of this answer do not describe the bytes that are sent.
func encodedOutside(w http.ResponseWriter, of http.Header) bool {
	encoding := w.Header().Values("Content-Encoding")
	return len(encoding) > 0 && slices.Equal(encoding, of.Values("Content-Encoding"))
}

// bodyAllowed reports whether an answer with this status may have a body (RFC 9110, sections 15.3.5 and 15.4.5).
func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}
