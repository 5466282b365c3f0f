package httpmw

import (
	"fmt"
	"iter"
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

// hadBegun tells, when an answer with a Content-Length was written to w, whether another one had begun there before, as by a Flush that watchPast cannot see.
// net/http takes no byte beyond the Content-Length that it has sent, and has sent none then. HTTP/1 closes the connection after that.
func hadBegun(w http.ResponseWriter, r *http.Request) bool {
	if w.Header().Get("Content-Length") == "" {
		return false
	}
	if r.ProtoMajor > 1 {
		_ = http.NewResponseController(w).Flush() // HTTP/2 compares with what it has sent
	}
	_, err := w.Write([]byte{'\n'})
	return err == nil
}

// ofNetHTTP reports whether w ends in a connection of net/http, of HTTP/1 or 2. Its types have no other sign.
func ofNetHTTP(w http.ResponseWriter) (is bool) {
	for w := range layers(w) {
		switch fmt.Sprintf("%T", w) {
		case "*http.response", "*http.http2responseWriter", "*http2.responseWriter":
			is = true
		}
	}
	return is
}

// ofEcho reports whether w is a writer of Echo. Its recoverer knows only the innermost one, and answers nothing if an answer has begun there.
func ofEcho(w http.ResponseWriter) bool {
	for w := range layers(w) {
		if _, is := w.(interface{ Before(hook func()) }); is {
			return true
		}
	}
	return false
}

// layers are a writer and those that it wraps, as far as they let one see that.
func layers(w http.ResponseWriter) iter.Seq[http.ResponseWriter] {
	return func(yield func(http.ResponseWriter) bool) {
		for w != nil && yield(w) {
			u, ok := w.(interface{ Unwrap() http.ResponseWriter })
			if !ok {
				return
			}
			w = u.Unwrap()
		}
	}
}

// cut breaks the connection off, so that the client gets no end of an answer that is wrong. It does not return. A recoverer further out may stop the panic,
// and what is buffered would be sent then, if it were not muted.
func cut(w http.ResponseWriter) {
	mute(w)
	panic(http.ErrAbortHandler)
}

// mute has nothing reach the client any more.
func mute(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
}
