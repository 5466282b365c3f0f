package httpmw

import (
	"fmt"
	"iter"
	"net/http"
	"time"
)

// watchPast returns a function that reports whether an answer has begun on w since this call. A handler must not write to w itself: such an answer is
// sent before COMMIT, even if the work is rolled back afterwards. Writers of frameworks report this; those of net/http do not.
func watchPast(w http.ResponseWriter) func() bool {
	switch w := w.(type) {
	case interface{ Written() bool }: // gin, negroni
		before := w.Written()
		return func() bool { return w.Written() != before }
	case interface{ Before(hook func()) }: // Echo
		begun := false
		w.Before(func() { begun = true })
		return func() bool { return begun }
	case interface{ Status() int }: // chi, and many middlewares that log
		before := w.Status()
		return func() bool { return w.Status() != before }
	}
	return func() bool { return false }
}

// hadBegun reports, after an answer with a Content-Length was written to w, whether another answer had begun there before, for example by a Flush
// that watchPast cannot see. It tries to write one byte more: net/http refuses a byte beyond the Content-Length that it has sent, and accepts it if
// it has sent no Content-Length, because the other answer had begun. HTTP/1 closes the connection after that.
func hadBegun(w http.ResponseWriter, r *http.Request) bool {
	if w.Header().Get("Content-Length") == "" {
		return false
	}
	if r.ProtoMajor > 1 {
		_ = http.NewResponseController(w).Flush() // HTTP/2 compares the length when it sends
	}
	_, err := w.Write([]byte{'\n'})
	return err == nil
}

// ofNetHTTP reports whether the innermost writer of w is that of net/http, for HTTP/1 or 2. Its types are not exported, so their names are
// compared.
func ofNetHTTP(w http.ResponseWriter) (is bool) {
	for w := range layers(w) {
		switch fmt.Sprintf("%T", w) {
		case "*http.response", "*http.http2responseWriter", "*http2.responseWriter":
			is = true
		}
	}
	return is
}

// ofEcho reports whether w is a writer of Echo. Echo's recovering middleware looks only at the innermost writer, and answers nothing if
// an answer has begun there.
func ofEcho(w http.ResponseWriter) bool {
	for w := range layers(w) {
		if _, is := w.(interface{ Before(hook func()) }); is {
			return true
		}
	}
	return false
}

// layers yields a writer and then each writer that it wraps, as far as they have Unwrap.
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

// cut closes the connection, so that the client cannot take a wrong answer for a complete one. It does not return. It mutes w first: otherwise a
// middleware that stops the panic would send buffered bytes.
func cut(w http.ResponseWriter) {
	mute(w)
	panic(http.ErrAbortHandler)
}

// mute makes all further writes to the client fail.
func mute(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
}
