package httpmwtest

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
)

// compress compresses answers, and says so before the handler begins.
func compress(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != gzipped {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", gzipped)
		zip := gzip.NewWriter(w)
		defer zip.Close()
		next.ServeHTTP(&zipping{w, zip}, r)
	})
}

type zipping struct {
	http.ResponseWriter

	to io.Writer
}

func (z *zipping) Write(p []byte) (int, error) { return z.to.Write(p) }

func brokenCompressions() map[string][]broken {
	return map[string][]broken{
		"each answer has its own compression": {
			{"that of the first", cached(keyOf, marked), "the encoding of an answer"},
			{"never", requests(func(r *http.Request) { r.Header.Del("Accept-Encoding") }), "the encoding of an answer"},
			{"is said and not done", answers(func(_ *service, r *http.Request, a *httptest.ResponseRecorder) {
				if r.Header.Get("Accept-Encoding") == gzipped {
					a.Body.Reset()
				}
			}), "the answer says that it is gzip"},
			{"is another key", requests(func(r *http.Request) { mixed(r, r.Header.Get("Accept-Encoding")) }), "executed again, or changed"},
			{"works for retries", twice(replayed), "committed executions"},
		},
	}
}
