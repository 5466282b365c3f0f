package kills

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/examples/orders/shop"
)

// perfect is the evidence of a run in which nothing went wrong.
func perfect() *evidence {
	e := &evidence{results: map[string][]result{}, summaries: map[customer]shop.Summary{}, shown: map[customer]shop.Summary{}}
	for n := range 40 {
		p := makePlan(n)
		e.plans = append(e.plans, p)
		o := orderFact{
			orderKey: orderKey{p.tenant, fmt.Sprintf("o%d", n)}, customer: p.customer, status: p.status,
			total: p.total, version: p.version, itemTotal: p.total,
		}
		e.orders = append(e.orders, o)

		steps := []step{p.place}
		for _, group := range p.changes {
			steps = append(steps, group...)
		}
		for _, s := range steps {
			e.results[s.tenant+"/"+s.key] = slices.Repeat([]result{{Status: s.want, Body: s.key, Location: "/orders/" + o.id}}, 3)
		}
		for version := range p.version {
			f := fact{orderKey: o.orderKey, id: fmt.Sprintf("e%d-%d", n, version), version: version + 1, partition: n % 4}
			if version == 0 {
				f.cents = o.total
			}
			e.sent, e.wire = append(e.sent, f), append(e.wire, f)
		}
		c := customer{p.tenant, p.customer}
		s := e.summaries[c]
		s.OrdersPlaced++
		if p.status == "cancelled" {
			s.OrdersCancelled++
		} else {
			s.TotalCents += p.total
		}
		e.summaries[c] = s
	}
	e.shown = maps.Clone(e.summaries)
	return e
}

// The judge is a guard as well: each thing that can go wrong is done to perfect evidence, and must be counted as what
// it is.
func TestJudge(t *testing.T) {
	someone := customer{makePlan(3).tenant, makePlan(3).customer} // has one order with three events, not cancelled
	for name, c := range map[string]struct {
		spoil func(e *evidence)
		want  judgement
	}{
		"nothing": {func(*evidence) {}, judgement{}},
		"an event never reached the wire": {func(e *evidence) {
			e.wire = slices.DeleteFunc(e.wire, func(f fact) bool { return f.id == "e3-1" })
		}, judgement{lost: 1}},
		"an order is gone": {func(e *evidence) {
			e.orders = slices.DeleteFunc(e.orders, func(o orderFact) bool { return o.id == "o3" })
		}, judgement{lost: 1, ghosts: 4}}, // its events and the summary are of an order that there is not
		"a change is gone": {func(e *evidence) { e.orders[3].version-- }, judgement{lost: 1, ghosts: 1}},
		"an event of a rolled-back unit": {func(e *evidence) {
			e.wire = append(e.wire, fact{id: "x", orderKey: e.wire[0].orderKey, version: 9})
		}, judgement{ghosts: 1}},
		"an event with two ids":         {func(e *evidence) { f := e.wire[0]; f.id = "x"; e.wire = append(e.wire, f) }, judgement{ghosts: 1}},
		"a message came again":          {func(e *evidence) { e.wire = append(e.wire, e.wire[0]) }, judgement{duplicates: 1}},
		"two events changed places":     {func(e *evidence) { swap(e.wire, "e3-0", "e3-1") }, judgement{disorder: 1}},
		"an order is in two partitions": {func(e *evidence) { e.wire[indexOf(e.wire, "e3-1")].partition++ }, judgement{disorder: 2}},
		"a row was settled twice":       {func(e *evidence) { e.sent = append(e.sent, e.sent[0]) }, judgement{twice: 1}},
		"a request was executed twice":  {func(e *evidence) { e.orders[3].version++ }, judgement{twice: 1, lost: 1}},
		"an order was placed twice": {func(e *evidence) {
			e.orders = append(e.orders, orderFact{orderKey: orderKey{"acme", "x"}, customer: "x"})
		}, judgement{twice: 1, lost: 1}},
		"two answers to one key":          {func(e *evidence) { e.results["acme/order-3-place"][1].Body = "x" }, judgement{differing: 1}},
		"a client without an answer":      {func(e *evidence) { e.results["acme/order-3-add-1"] = nil }, judgement{wrong: 1}},
		"a wrong answer":                  {func(e *evidence) { setStatus(e.results["acme/order-3-add-1"], 500) }, judgement{wrong: 1}},
		"a placement was handled twice":   {func(e *evidence) { e.change(someone, shop.Summary{OrdersPlaced: 1, TotalCents: 5}) }, judgement{twice: 1}},
		"an item was handled twice":       {func(e *evidence) { e.change(someone, shop.Summary{TotalCents: 5}) }, judgement{twice: 1}},
		"a placement was not handled":     {func(e *evidence) { e.change(someone, shop.Summary{OrdersPlaced: -1, TotalCents: -5}) }, judgement{lost: 1}},
		"an item was not handled":         {func(e *evidence) { e.change(someone, shop.Summary{TotalCents: -5}) }, judgement{lost: 1}},
		"a summary of nobody":             {func(e *evidence) { e.summaries[customer{"acme", "nobody"}] = shop.Summary{} }, judgement{ghosts: 1}},
		"another summary is shown":        {func(e *evidence) { e.shown[someone] = shop.Summary{} }, judgement{wrong: 1}},
		"the events add up to too little": {func(e *evidence) { e.wire[0].cents-- }, judgement{wrong: 1}},
		"the lines add up to too much":    {func(e *evidence) { e.orders[3].itemTotal++ }, judgement{wrong: 1}},
		"the order is not as planned":     {func(e *evidence) { e.orders[3].total++; e.orders[3].itemTotal++ }, judgement{wrong: 2, lost: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			e := perfect()
			c.spoil(e)
			got := e.judge()
			details := got.details
			got.details = nil
			require.Equal(t, c.want, *got, details)
			require.Equal(t, name == "nothing" || name == "a message came again", got.clean())
		})
	}
}

// change changes a summary, in the database and so in what is shown.
func (e *evidence) change(c customer, by shop.Summary) {
	s := e.summaries[c]
	s.OrdersPlaced += by.OrdersPlaced
	s.TotalCents += by.TotalCents
	e.summaries[c], e.shown[c] = s, s
}

func swap(facts []fact, a, b string) {
	i, j := indexOf(facts, a), indexOf(facts, b)
	facts[i], facts[j] = facts[j], facts[i]
}

func indexOf(facts []fact, id string) int {
	return slices.IndexFunc(facts, func(f fact) bool { return f.id == id })
}

func setStatus(results []result, status int) {
	for i := range results {
		results[i].Status = status
	}
}

// The plan must exercise what it is there for, and be the same in every run.
func TestPlan(t *testing.T) {
	customers, keys := map[customer]bool{}, map[string]bool{}
	cancelled, refused, atOnce := 0, 0, 0
	const orders = 600
	for n := range orders {
		p := makePlan(n)
		require.Equal(t, fmt.Sprint(p), fmt.Sprint(makePlan(n)))
		require.True(t, json.Valid([]byte(p.place.body)))
		customers[customer{p.tenant, p.customer}] = true
		keys[p.place.key] = true
		if p.status == "cancelled" {
			cancelled++
		}
		for _, group := range p.changes {
			if len(group) > 1 {
				atOnce++
			}
			for _, s := range group {
				keys[s.key] = true
				if s.want == 422 {
					refused++
				}
			}
		}
	}
	require.Len(t, customers, planCustomers*len(planTenants), "each customer in each tenant")
	require.Greater(t, len(keys), 2*orders)
	require.Greater(t, cancelled, orders/5)
	require.Greater(t, refused, orders/20)
	require.Greater(t, atOnce, orders/7)
}
