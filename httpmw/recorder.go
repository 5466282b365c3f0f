package httpmw

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// errNotHeld means that an answer cannot be held until COMMIT.
var errNotHeld = errors.New("httpmw: the answer of the handler cannot be kept back until COMMIT")

// errSilent means that the handler has written neither a status nor a body. net/http would answer 200. But a handler that has failed looks the same
// in a framework that renders the handler's error further out.
var errSilent = fmt.Errorf("%w: the handler has returned without writing an answer, which may be a failure: call w.WriteHeader(http.StatusNoContent) if "+
	"the answer is empty. If a web framework renders the errors of handlers, let it do so inside this middleware (docs/other-routers.md). To count an "+
	"empty answer as status 200, set IdempotencyConfig.EmptyAnswer or httpmw.WithEmptyAnswer", errNotHeld)

// errPast means that the handler has sent its answer, or a part of it, to the client directly and not through the recorder.
var errPast = fmt.Errorf("%w: the handler wrote to a http.ResponseWriter from outside of this middleware: it must write to the writer "+
	"with which this middleware calls it (docs/other-routers.md)", errNotHeld)

// errOver is the error of a write after the handler has returned.
var errOver = errors.New("httpmw: write to the response: the handler has already returned, so the bytes are discarded")

// recorder holds a handler's answer until it can be sent. If the handler sets no content type, none is recorded: net/http derives it from the body
// when the answer is sent, and the same for replays.
//
// When the handler has returned, writes fail. After a panic nothing was sent. A middleware further out that recovers may know no other writer than
// this one, so its writes are passed on to the outer writer.
//
// It has no Unwrap: otherwise http.ResponseController would find the real writer behind it, with Flush and Hijack.
type recorder struct {
	outer   http.ResponseWriter // for deadlines, and for the headers that middlewares further out have set
	limit   int                 // most bytes of a body; negative: no limit
	header  http.Header
	implied int // the status of an answer that sets none

	mu      sync.Mutex  // guards the fields below: a goroutine that the handler has started may still write
	sent    http.Header // copy of header at WriteHeader; later changes are not sent
	status  int         // 0 until the first write
	body    bytes.Buffer
	err     error
	phase   phase
	late    func() // called for each write after the handler's end
	refused bool   // the answer is a refusal of a middleware further in, and not the handler's own
}

// phase is how far a handler has got.
type phase int

const (
	running phase = iota
	returned
	panicked
)

// newRecorder begins with the headers that middlewares further out have set, so that the handler can change them.
func newRecorder(w http.ResponseWriter, limit int) *recorder {
	return &recorder{outer: w, limit: limit, header: w.Header().Clone(), implied: http.StatusOK}
}

// Header returns the headers of the answer. They include the headers that middlewares further out have set.
func (r *recorder) Header() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase == panicked {
		return r.outer.Header()
	}
	return r.header
}

// WriteHeader fixes the status and the headers. Informational answers are dropped: nothing is sent before COMMIT.
func (r *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("httpmw: WriteHeader: invalid status %d", status)) // net/http panics, too
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.phase {
	case running:
		r.writeHeader(status)
	case returned:
		r.late()
	case panicked:
		r.outer.WriteHeader(status)
	}
}

func (r *recorder) writeHeader(status int) {
	if r.status == 0 && status >= http.StatusOK {
		r.status, r.sent = status, r.header.Clone()
	}
}

// Write adds to the body.
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.phase {
	case running:
		return r.write(p)
	case panicked:
		return r.outer.Write(p)
	default:
		r.late()
		return 0, errOver
	}
}

func (r *recorder) write(p []byte) (int, error) {
	r.writeHeader(r.implied)
	if !bodyAllowed(r.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if r.err == nil && r.limit >= 0 && r.body.Len()+len(p) > r.limit {
		r.err = fmt.Errorf("%w: it is larger than MaxHeld, %d bytes", errNotHeld, r.limit)
	}
	if r.err != nil {
		return 0, r.err
	}
	return r.body.Write(p)
}

// markRefused records that the next answer is the refusal of a middleware further in.
func (r *recorder) markRefused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = r.refused || r.phase == running && r.status == 0
}

// drops reports, after the handler's end, whether its work must be rolled back.
func (r *recorder) drops() bool { return r.refused || r.status >= http.StatusBadRequest }

// SetReadDeadline sets the deadline of the connection.
func (r *recorder) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(r.outer).SetReadDeadline(t)
}

// SetWriteDeadline sets the deadline of the connection, for the answer when it is sent.
func (r *recorder) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(r.outer).SetWriteDeadline(t)
}

// EnableFullDuplex succeeds: the request was read before the handler began.
func (r *recorder) EnableFullDuplex() error { return nil }

// end records that the handler has returned or panicked, see by. From then on writes fail and call late. begun reports whether the handler had begun
// an answer before it panicked.
func (r *recorder) end(by phase, late func()) (begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase, r.late = by, late
	return by == panicked && r.status != 0
}

// finish checks the answer after the handler's end. It returns an error if it is not the answer that the handler meant to send. With empty, a handler
// that has written nothing means 200.
func (r *recorder) finish(empty bool) error {
	if r.err != nil {
		return r.err
	}
	if r.status == 0 {
		if !empty {
			return errSilent
		}
		r.writeHeader(http.StatusOK)
	}
	if declared := r.sent.Get("Content-Length"); declared != "" && bodyAllowed(r.status) && declared != strconv.Itoa(r.body.Len()) {
		return fmt.Errorf("%w: the handler wrote %d bytes, which is not the number that it set as Content-Length", errNotHeld, r.body.Len())
	}
	if r.sent.Get("Trailer") != "" {
		return fmt.Errorf("%w: it has trailers", errNotHeld)
	}
	for name := range r.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			return fmt.Errorf("%w: it has trailers", errNotHeld)
		}
	}
	return nil
}

func (r *recorder) answer() *answer {
	return &answer{status: r.status, header: r.sent, body: r.body.Bytes()}
}
