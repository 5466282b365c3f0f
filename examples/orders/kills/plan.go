package kills

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
)

// planCustomers and planTenants make a few orders of each customer of each tenant.
const planCustomers = 200

var planTenants = []string{"acme", "globex", "initech"}

// plan is what is done to one order, and what it must have come to in the end. It is worked out here, with nothing of
// the service, and is the same in every run.
type plan struct {
	tenant, customer string
	place            step
	changes          [][]step // the steps of one group are taken at once, the groups one after the other

	status  string
	total   int64
	version int64
}

// step is one request that a client wants done once.
type step struct {
	tenant, key, path, body string // the path is that of the order if it begins with /items or /cancel
	want                    int    // status
}

func makePlan(n int) plan {
	random := rand.New(rand.NewPCG(20261121, uint64(n))) //nolint:gosec // the same in every run
	p := plan{
		tenant: planTenants[n%len(planTenants)], customer: fmt.Sprintf("customer-%03d", n%planCustomers),
		status: "placed", version: 1,
	}
	ask := func(name, path string, want int, body any) step {
		encoded, err := json.Marshal(body)
		if err != nil {
			panic(err) // maps of strings and numbers
		}
		s := step{tenant: p.tenant, key: fmt.Sprintf("order-%d-%s", n, name), path: path, want: want}
		if body != nil {
			s.body = string(encoded)
		}
		return s
	}
	item := func() (map[string]any, int64) {
		qty, price := random.Int64N(5)+1, random.Int64N(1000)+1
		return map[string]any{"sku": fmt.Sprintf("sku-%d", random.IntN(50)), "qty": qty, "price_cents": price}, qty * price
	}
	add := func(name string) step {
		body, worth := item()
		p.total += worth
		p.version++
		return ask(name, "/items", http.StatusOK, body)
	}

	var items []map[string]any
	for range random.IntN(3) + 1 {
		body, worth := item()
		items = append(items, body)
		p.total += worth
	}
	p.place = ask("place", "/orders", http.StatusCreated, map[string]any{"customer_id": p.customer, "items": items})
	switch n % 5 {
	case 1, 2:
		p.changes = append(p.changes, []step{add("add-1")})
	case 3:
		p.changes = append(p.changes, []step{add("add-1")}, []step{add("add-2")})
	case 4: // different requests for one order at once
		p.changes = append(p.changes, []step{add("add-1"), add("add-2")})
	}
	if n%4 == 0 {
		p.status = "cancelled"
		p.version++
		p.changes = append(p.changes, []step{ask("cancel", "/cancel", http.StatusOK, nil)})
	}
	if n%16 == 0 { // refused, and every retry gets the same answer
		body, _ := item()
		p.changes = append(p.changes, []step{ask("late", "/items", http.StatusUnprocessableEntity, body)})
	}
	return p
}
