package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/uow"
)

// A handler that calls a bank and books the charge. It fails in between; the retry goes on from there.
func ExampleLeaseConfig() {
	db, done := exampleDB("CREATE TABLE charges (id text PRIMARY KEY)")
	defer done()

	units, keys := uow.New(db, nil), idempotency.NewStore(nil)
	once := httpmw.Idempotency(units, keys, func(*http.Request) (idempotency.Scope, error) {
		return idempotency.Anonymous("acme"), nil
	}, &httpmw.IdempotencyConfig{Required: true, Lease: &httpmw.LeaseConfig{}})

	bank := func(key string) (string, error) {
		fmt.Println("the bank is asked, with a key of", len(key), "characters")
		return "charge-1", nil
	}
	down := errors.New("the ledger is down")

	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charge, err := step.Call(r.Context(), "charge", func(_ context.Context, key string) (string, error) { return bank(key) })
		if err == nil {
			err = down
		}
		if err == nil {
			err = units.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
				_, err := idempotency.StepTx(ctx, u.DB(), "book", func(ctx context.Context) (bool, error) {
					_, err := u.DB().ExecContext(ctx, "INSERT INTO charges (id) VALUES (?)", charge)
					return true, err
				})
				return err
			})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway) // the key is free, and the charge is remembered
			return
		}
		fmt.Fprintln(w, charge)
	}))

	send := func() {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"cents": 100}`))
		r.Header.Set("Idempotency-Key", "k1")
		w := httptest.NewRecorder()
		pay.ServeHTTP(w, r)
		fmt.Print(w.Code, " ", w.Header().Get("Idempotent-Replayed"), " ", w.Body.String())
	}
	send()
	down = nil
	send()
	send()
	// Output:
	// the bank is asked, with a key of 32 characters
	// 502  the ledger is down
	// 200  charge-1
	// 200 true charge-1
}
