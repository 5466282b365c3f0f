package tour

import (
	"context"
	"fmt"
	"net/http"
)

// try is a request for the reader to send.
type try struct {
	method, path, key, body string
	status                  int
	what                    string
}

func tries() []try {
	const (
		mine  = "/orders/mine"
		key   = "key-of-mine"
		order = `{"customer":"you","total_cents":700}`
	)
	return []try{
		{http.MethodPost, mine, key, order, http.StatusCreated, "places an order"},
		{http.MethodPost, mine, key, order, http.StatusCreated, "the same again: the stored answer, Idempotent-Replayed: true"},
		{http.MethodGet, "/spending/you", "", "", http.StatusOK, "what the consumer has counted, a moment later: one order"},
		{http.MethodPost, mine, key, `{"customer":"you","total_cents":1}`, http.StatusUnprocessableEntity, "the key of another request"},
		{http.MethodPost, mine, "another-key", order, http.StatusConflict, "the order exists"},
		{
			http.MethodPost, "/orders/poison", "key-of-poison", `{"customer":"nobody","total_cents":100}`, http.StatusCreated,
			"an order that its consumer gives up: the console shows why",
		},
		{http.MethodPost, "/orders/other", "", order, http.StatusBadRequest, "a POST without a key"},
	}
}

// serve prints what can be tried, and waits until ctx is done.
func (s *story) serve(ctx context.Context) {
	s.sayf("\nServing at %s until Ctrl-C. The page for operators is %s/console/. Try, in this order:\n", s.url, s.url)
	for _, t := range tries() {
		s.sayf("# %d: %s\n%s\n", t.status, t.what, t.curl(s.url))
	}
	<-ctx.Done()
}

// curl returns the command for a shell.
func (t try) curl(url string) string {
	line := "curl -i"
	if t.key != "" {
		line += fmt.Sprintf(" -H 'Idempotency-Key: %s'", t.key)
	}
	if t.body != "" {
		line += fmt.Sprintf(" -d '%s'", t.body)
	}
	return line + " " + url + t.path
}
