package fasthttpmw

import (
	"bytes"
	"io"
	"maps"
	"net/http"

	"github.com/valyala/fasthttp"
)

// answer collects the answer that the middleware writes.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// newAnswer starts with the headers that other code has set before.
func newAnswer(before *fasthttp.Response) *answer {
	a := &answer{header: http.Header{}}
	maps.Copy(a.header, headersOf(before))
	if len(before.Body()) == 0 {
		a.header.Del("Content-Type") // fasthttp adds this default by itself
	}
	return a
}

// Header returns the headers.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader sets the status. The first final status counts.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

// Write adds to the body.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

// send copies the collected answer into fasthttp's response.
func (a *answer) send(to *fasthttp.Response) {
	a.WriteHeader(http.StatusOK)
	// A header that the middleware has deleted has to go, even if other code had set it before.
	for name := range headersOf(to) {
		if len(a.header[name]) == 0 {
			to.Header.Del(name)
		}
	}
	for name, values := range a.header {
		if derived(name) {
			continue
		}
		to.Header.Del(name)
		for _, value := range values {
			to.Header.Add(name, value)
		}
	}
	if a.header.Get("Content-Type") == "" && a.body.Len() > 0 {
		to.Header.SetContentType(http.DetectContentType(a.body.Bytes())) // as net/http does
	}
	to.SetStatusCode(a.status)
	to.SetBody(a.body.Bytes())
}

// copyTo writes the answer of a handler to w and returns its status, 0 if the handler has set neither a status nor a body.
func copyTo(w http.ResponseWriter, from *fasthttp.Response) (status int) {
	body := from.Body()
	// A header that the handler has deleted has to go as well, so w begins anew.
	clear(w.Header())
	maps.Copy(w.Header(), headersOf(from))
	if len(body) == 0 {
		w.Header().Del("Content-Type")
		// The status of fasthttp is 200 from the beginning, so this is a response that nobody has touched.
		if from.StatusCode() == http.StatusOK {
			return 0
		}
	}
	w.WriteHeader(from.StatusCode())
	if len(body) > 0 {
		_, _ = io.Copy(w, bytes.NewReader(body)) // if the body is too large to be held, w remembers that for the middleware
	}
	return from.StatusCode()
}

// headersOf leaves out what fasthttp sets itself: a Content-Length that was copied would be that of another body.
func headersOf(from *fasthttp.Response) http.Header {
	header := http.Header{}
	for name, value := range from.Header.All() {
		if name := http.CanonicalHeaderKey(string(name)); !derived(name) {
			header.Add(name, string(value))
		}
	}
	return header
}

// derived reports whether fasthttp sets this header itself, from the answer or the connection.
func derived(name string) bool {
	switch name {
	case "Connection", "Content-Length", "Date", "Server", "Transfer-Encoding":
		return true
	}
	return false
}
