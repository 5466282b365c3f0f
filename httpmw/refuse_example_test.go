package httpmw_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/uow"
)

// An API that speaks as Stripe's does, for the clients that Stripe has.
func ExampleRefuseFunc() {
	db, done := exampleDB("SELECT 1")
	defer done()

	// stripe-go repeats a request only after one error in Stripe's format, a lock timeout. Stripe's other clients look at the header.
	refuse := func(w http.ResponseWriter, _ *http.Request, p httpmw.Problem) {
		kind, code, status := "idempotency_error", strings.ReplaceAll(p.Type, "-", "_"), p.Status
		switch {
		case p.Retryable:
			code, status = "lock_timeout", http.StatusTooManyRequests
		case p.Status >= http.StatusInternalServerError:
			kind = "api_error"
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Stripe-Should-Retry", strconv.FormatBool(p.Retryable))
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"error": {"type": %q, "code": %q, "message": %q}}`, kind, code, p.Title)
	}

	once := httpmw.Idempotency(uow.New(db, nil), idempotency.NewStore(nil), func(*http.Request) (idempotency.Scope, error) {
		return idempotency.Anonymous("acme"), nil
	}, &httpmw.IdempotencyConfig{Refuse: refuse, ReusedStatus: http.StatusBadRequest})
	server := httptest.NewServer(once(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "charged") })))
	defer server.Close()
	for _, body := range []string{"amount=500", "amount=900"} {
		r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, server.URL+"/v1/charges", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Idempotency-Key", "8e03")
		resp, err := server.Client().Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get("Stripe-Should-Retry"), strings.TrimSpace(string(text)))
	}
	// Output:
	// 200  charged
	// 400 false {"error": {"type": "idempotency_error", "code": "idempotency_key_reused", "message": "This Idempotency-Key was used with another request"}}
}
