package httpmw_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
)

// A job that is run again, after a crash for example, sends the keys that it has sent before.
func ExampleTransport() {
	seen := map[string]bool{}
	bank := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		fmt.Println(r.Method, r.URL, "known:", seen[key])
		seen[key] = true
	}))
	defer bank.Close()
	client := &http.Client{Transport: &httpmw.Transport{}}

	job := func(ctx context.Context) {
		for _, path := range []string{"/debit", "/credit"} {
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, bank.URL+path, strings.NewReader("500"))
			resp, err := client.Do(req)
			if err != nil {
				fmt.Println(err)
				return
			}
			resp.Body.Close()
		}
	}
	for range 2 {
		job(idempotency.NewContext(context.Background(), "payroll 2025-03")) // handlers of requests have such a context
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	// Output:
	// POST /debit known: false
	// POST /credit known: false
	// POST /debit known: true
	// POST /credit known: true
}
