package httpmw

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// errNotHeld means that an answer cannot be kept back until COMMIT.
var errNotHeld = errors.New("httpmw: the answer cannot be held")

// recorder takes a handler's answer and keeps it. A content type that the handler left out stays out: net/http guesses it
// from the body when the answer is sent, and the same for replays.
//
// It has no Unwrap, or http.ResponseController would find the real writer behind it, and with it Flush and Hijack.
type recorder struct {
	outer  http.ResponseWriter // for deadlines, and to see what middlewares further out have set
	limit  int                 // bytes of body; negative: none
	header http.Header
	sent   http.Header // header as it was at WriteHeader; what is set afterwards is not sent
	status int         // 0: nothing was written yet
	body   bytes.Buffer
	err    error
}

func newRecorder(w http.ResponseWriter, limit int) *recorder {
	return &recorder{outer: w, limit: limit, header: w.Header().Clone()}
}

// Header returns the headers of the answer, with what middlewares further out have set already.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader fixes the status and the headers. Informational answers are dropped: nothing is sent before COMMIT.
func (r *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("httpmw: WriteHeader: invalid status %d", status)) // as net/http does
	}
	if r.status != 0 || status < 200 {
		return
	}
	r.status, r.sent = status, r.header.Clone()
}

// Write adds to the body.
func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
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

// finish ends the recording. An error means that the answer is not what the handler wanted to send.
func (r *recorder) finish() error {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	if r.err != nil {
		return r.err
	}
	if declared := r.sent.Get("Content-Length"); declared != "" && bodyAllowed(r.status) && declared != strconv.Itoa(r.body.Len()) {
		return fmt.Errorf("%w: it was cut off: %d bytes were written, and Content-Length says otherwise", errNotHeld, r.body.Len())
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
