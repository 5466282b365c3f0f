package kills

import (
	"fmt"
	"strings"

	"github.com/oncebox/oncebox/examples/orders/shop"
)

// evidence is what can be known about a run from outside: what was asked, what was answered, what is in the database,
// what was on the wire. None of it comes from the service's own counters.
type evidence struct {
	plans     []plan
	results   map[string][]result // by tenant and key
	orders    []orderFact
	sent      []fact // outbox_published
	wire      []fact // what was published, in the order of each partition, see Wire
	summaries map[customer]shop.Summary
	shown     map[customer]shop.Summary // as the API shows them
}

// result is the last answer that a client got.
type result struct {
	Status                      int
	Body, Location, ContentType string
}

type customer struct{ tenant, id string }

type orderKey struct{ tenant, id string }

// orderFact is an order in the database.
type orderFact struct {
	orderKey
	customer  string
	status    string
	total     int64
	version   int64
	itemTotal int64 // the sum of its lines
}

// fact is an event in the database or on the wire.
type fact struct {
	orderKey
	id        string
	kind      string
	version   int64
	cents     int64 // what it adds to the order's total
	partition int   // on the wire
}

// judgement counts what went wrong. All counts but that of the wire's duplicates must be 0.
type judgement struct {
	lost       int // committed, or answered with success, and missing further on
	ghosts     int // on the wire or in the read model, and never committed
	disorder   int // seen first after a later one of its order
	twice      int // one request or one event with more than one effect
	differing  int // keys whose answers differ
	wrong      int // anything else that is not as planned
	duplicates int // messages that were on the wire before

	details []string // the first of each kind
}

func (v *judgement) clean() bool {
	return v.lost+v.ghosts+v.disorder+v.twice+v.differing+v.wrong == 0
}

func (v *judgement) notef(n *int, format string, args ...any) {
	if *n++; *n <= 5 {
		v.details = append(v.details, fmt.Sprintf(format, args...))
	}
}

// judge compares the answers, the orders, the messages and the read model with the plans.
func (e *evidence) judge() *judgement {
	v := &judgement{}
	e.judgeAnswers(v)
	e.judgeOrders(v)
	e.judgeWire(v)
	e.judgeReadModel(v)
	return v
}

// judgeAnswers checks that all answers to one key are the same, and have the status that was planned.
func (e *evidence) judgeAnswers(v *judgement) {
	for _, p := range e.plans {
		steps := []step{p.place}
		for _, group := range p.changes {
			steps = append(steps, group...)
		}
		for _, s := range steps {
			results := e.results[s.tenant+"/"+s.key]
			if len(results) < 3 {
				v.notef(&v.wrong, "%s was sent by three clients and answered %d times", s.key, len(results))
				continue
			}
			if results[0].Status != s.want {
				v.notef(&v.wrong, "%s was answered %d %s, not %d", s.key, results[0].Status, results[0].Body, s.want)
			}
			for _, r := range results[1:] {
				if r != results[0] {
					v.notef(&v.differing, "%s was answered %v and %v", s.key, results[0], r)
					break
				}
			}
		}
	}
}

// judgeOrders: each plan made one order, and each of its requests counted once.
func (e *evidence) judgeOrders(v *judgement) {
	byID := map[orderKey]orderFact{}
	for _, o := range e.orders {
		byID[o.orderKey] = o
		if o.itemTotal != o.total {
			v.notef(&v.wrong, "order %s has a total of %d and lines of %d", o.id, o.total, o.itemTotal)
		}
	}
	planned := map[orderKey]bool{}
	for _, p := range e.plans {
		results := e.results[p.tenant+"/"+p.place.key]
		if len(results) == 0 {
			continue // judged above
		}
		key := orderKey{p.tenant, idInLocation(results[0].Location)}
		planned[key] = true
		o, found := byID[key]
		switch {
		case !found:
			v.notef(&v.lost, "%s was answered and its order %s is not in the database", p.place.key, key.id)
		case o.version < p.version:
			v.notef(&v.lost, "order %s of %s is at version %d, not %d", key.id, p.place.key, o.version, p.version)
		case o.version > p.version:
			v.notef(&v.twice, "order %s of %s is at version %d, not %d", key.id, p.place.key, o.version, p.version)
		case o.total != p.total || o.status != p.status || o.customer != p.customer:
			v.notef(&v.wrong, "order %s of %s is %+v, planned was %s %d", key.id, p.place.key, o, p.status, p.total)
		}
	}
	for key := range byID {
		if !planned[key] {
			v.notef(&v.twice, "order %s is in the database and in no answer", key.id)
		}
	}
}

// judgeWire: what was committed is what was on the wire, in order.
func (e *evidence) judgeWire(v *judgement) { //nolint:gocognit // one comparison after the other
	type place struct {
		orderKey
		version int64
	}
	committed, sent := map[place]bool{}, map[string]bool{}
	for _, o := range e.orders {
		for n := int64(1); n <= o.version; n++ {
			committed[place{o.orderKey, n}] = true
		}
	}
	for _, f := range e.sent {
		if sent[f.id] {
			v.notef(&v.twice, "event %s was settled twice", f.id)
		}
		sent[f.id] = true
	}

	seen, onWire := map[string]bool{}, map[place]bool{}
	last, partition, cents := map[orderKey]int64{}, map[orderKey]int{}, map[orderKey]int64{}
	for _, f := range e.wire {
		if seen[f.id] {
			v.duplicates++
			continue
		}
		seen[f.id] = true
		at := place{f.orderKey, f.version}
		if !sent[f.id] || !committed[at] || onWire[at] {
			v.notef(&v.ghosts, "event %s, version %d of order %s, was on the wire and not committed", f.id, f.version, f.orderKey.id)
			continue
		}
		onWire[at] = true
		if before, some := partition[f.orderKey]; some && (before != f.partition || f.version < last[f.orderKey]) {
			v.notef(&v.disorder, "version %d of order %s in partition %d came after version %d in partition %d",
				f.version, f.orderKey.id, f.partition, last[f.orderKey], before)
		}
		partition[f.orderKey], last[f.orderKey] = f.partition, max(f.version, last[f.orderKey])
		cents[f.orderKey] += f.cents
	}
	for at := range committed {
		if !onWire[at] {
			v.notef(&v.lost, "version %d of order %s was committed and never on the wire", at.version, at.id)
		}
	}
	for _, f := range e.sent {
		if !seen[f.id] && !committed[place{f.orderKey, f.version}] {
			v.notef(&v.lost, "event %s was settled and never on the wire", f.id)
		}
	}
	for _, o := range e.orders {
		if cents[o.orderKey] != o.total {
			v.notef(&v.wrong, "the events of order %s add up to %d, not %d", o.id, cents[o.orderKey], o.total)
		}
	}
}

// judgeReadModel: each event counted once. The truth is what the orders in the database say.
func (e *evidence) judgeReadModel(v *judgement) {
	truth := map[customer]shop.Summary{}
	for _, o := range e.orders {
		c := customer{o.tenant, o.customer}
		s := truth[c]
		s.OrdersPlaced++
		if o.status == "cancelled" {
			s.OrdersCancelled++
		} else {
			s.TotalCents += o.total
		}
		truth[c] = s
	}
	for c, want := range truth {
		got := e.summaries[c]
		switch {
		case got.OrdersPlaced > want.OrdersPlaced || got.OrdersCancelled > want.OrdersCancelled:
			v.notef(&v.twice, "summary of %v is %+v, not %+v", c, got, want)
		case got.OrdersPlaced < want.OrdersPlaced || got.OrdersCancelled < want.OrdersCancelled:
			v.notef(&v.lost, "summary of %v is %+v, not %+v", c, got, want)
		case got.TotalCents > want.TotalCents: // items that were added twice
			v.notef(&v.twice, "summary of %v is %+v, not %+v", c, got, want)
		case got.TotalCents < want.TotalCents:
			v.notef(&v.lost, "summary of %v is %+v, not %+v", c, got, want)
		}
		if e.shown[c] != got {
			v.notef(&v.wrong, "summary of %v is %+v, and the service says %+v", c, got, e.shown[c])
		}
	}
	for c := range e.summaries {
		if _, known := truth[c]; !known {
			v.notef(&v.ghosts, "there is a summary of %v, who has no orders", c)
		}
	}
}

func idInLocation(location string) string { return strings.TrimPrefix(location, "/orders/") }
