package httpjson

import (
	"net/http"

	"github.com/oncebox/oncebox/httpmw"
)

// Mux returns mux with one format of errors: a request that no pattern matches gets a problem with the status that mux would answer, 404 or 405, and
// with its headers, such as Allow. Package serve does this for a handler that is a ServeMux.
func Mux(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		said := &refusal{ResponseWriter: w}
		h.ServeHTTP(said, r)
		httpmw.WriteProblem(w, r, httpmw.Problem{Status: said.status})
	})
}

// refusal takes the status of a ServeMux that has found no pattern, and drops its text.
type refusal struct {
	http.ResponseWriter

	status int
}

func (r *refusal) WriteHeader(status int) { r.status = status }

func (r *refusal) Write(text []byte) (int, error) { return len(text), nil }
