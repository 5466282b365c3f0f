package policy

import (
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
)

// openAPIName is the name under which the fragment of OpenAPI is served.
const openAPIName = "openapi.json"

// Handler returns a handler that shows clients the rules and guarantees of [httpmw.Idempotency] with the same store and configuration. Mount it
// where IdempotencyConfig.ProblemBase points to, so that the types of problems lead to it:
//
//	r.Mount("/problems/", policy.Handler(keys, cfg))
//
// It serves
//
//   - at its root the rules: methods, how long answers are kept, sizes, which answers are kept, all as configured
//   - for each type of problem a page: what has happened, and what to do
//   - at openapi.json a fragment of OpenAPI 3.1 with the parameter, the headers, the answers by status and the schema of
//     problems, to be referred to by the description of the interface, and with the rules as x-idempotency
//
// With IdempotencyConfig.Refuse the fragment has no schema of an error, and its statuses are those of the problems that this function gets.
//
// Routes with configurations of their own have policies, and ProblemBases, of their own. It panics if s is nil or cfg is invalid.
func Handler(s *idempotency.Store, cfg *httpmw.IdempotencyConfig) http.Handler {
	if s == nil {
		panic("policy: Handler: the store is nil: pass the store that httpmw.Idempotency has")
	}
	c := cfg.WithDefaults()
	if err := c.Validate(); err != nil {
		panic(err)
	}
	p := &policy{cfg: c, ttl: s.TTL()}
	documents := map[string]document{
		"":          {"text/html; charset=utf-8", p.index()},
		openAPIName: {"application/json", p.openAPI()},
	}
	// Pages exist for all kinds, also for kinds that this configuration cannot cause: another version of
	// the service may have caused them.
	for _, k := range p.kinds(true) {
		documents[k.Type] = document{"text/html; charset=utf-8", p.page(k)}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The last part of the path is enough, so the handler works wherever it is mounted.
		name := path.Base(r.URL.Path)
		if strings.HasSuffix(r.URL.Path, "/") {
			name = ""
		}
		d, known := documents[name]
		switch {
		case !known:
			http.NotFound(w, r)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		default:
			d.write(w)
		}
	})
}

// document is a served text. It is made once, because nothing in it changes while the program runs.
type document struct {
	contentType string
	body        []byte
}

func (d document) write(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Content-Type", d.contentType)
	header.Set("Content-Length", strconv.Itoa(len(d.body)))
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "public, max-age=300")
	_, _ = w.Write(d.body)
}
