package httpmw

import (
	"net/http"
	"time"
)

// watchPast returns a function that tells whether an answer has begun on w since. Nothing may be written to w while a handler runs: the answer is
// on its way then, whatever becomes of the work. net/http's own writers do not let one see it, those of frameworks do.
func watchPast(w http.ResponseWriter) func() bool {
	switch w := w.(type) {
	case interface{ Written() bool }: // gin, negroni
		before := w.Written()
		return func() bool { return w.Written() != before }
	case interface{ Before(hook func()) }: // Echo
		begun := false
		w.Before(func() { begun = true })
		return func() bool { return begun }
	case interface{ Status() int }: // chi, and many that log
		before := w.Status()
		return func() bool { return w.Status() != before }
	}
	return func() bool { return false }
}

// cut breaks the connection off, so that the client gets no end of an answer that is wrong. It does not return. A recoverer further out may stop the panic,
// and what is buffered would be sent then, but for the deadline.
func cut(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
	panic(http.ErrAbortHandler)
}
