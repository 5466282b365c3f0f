package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// A bank that knows no keys, and that did not answer: somebody has to look there.
func ExampleLeaseConfig_unknown() {
	db, done := exampleDB("SELECT 1")
	defer done()
	ctx := context.Background()
	report := func(_ time.Time, tenant, _, _, step string) { fmt.Println("unknown:", tenant, step) }

	keys := idempotency.NewStore(nil)
	once := httpmw.Idempotency(uow.New(db, nil), keys, func(*http.Request) (idempotency.Scope, error) {
		return idempotency.Anonymous("acme"), nil
	}, &httpmw.IdempotencyConfig{Lease: &httpmw.LeaseConfig{}})
	pay := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		charge, err := idempotency.StepOnce(r.Context(), "charge", func(context.Context) (string, error) {
			return "", errors.New("the bank did not answer")
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		fmt.Fprint(w, charge)
	}))
	send := func() {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"cents": 100}`))
		r.Header.Set("Idempotency-Key", "k1")
		w := httptest.NewRecorder()
		pay.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	send()
	send()

	list, err := keys.Unknown(ctx, db, "", 100) // tenant "": all
	for _, u := range list {
		report(u.BegunAt, u.Tenant, u.Request, u.Key, u.Step)
	}
	if err != nil || len(list) != 1 {
		fmt.Println(len(list), err)
		return
	}
	u, receipt := list[0], "charge-1"
	by := operator.By{Actor: "ann@example.com", Reason: "it is in the bank's list"}
	resolved, err := keys.Resolve(ctx, db, u, idempotency.StepDone(receipt), by) // receipt: what the step would have returned
	fmt.Println(resolved, err)
	send()
	// Output:
	// 502
	// 503
	// unknown: acme charge
	// true <nil>
	// 200
}
