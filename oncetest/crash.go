package oncetest

import (
	"slices"
	"sync"
)

// Point is a place in the service at which a test can make it crash, see [Kit.CrashAt].
type Point string

// The points, in the order in which an event passes them.
const (
	// BeforeCommit is when a unit of work has done its work, and COMMIT was not sent yet: nothing of it is in the database afterwards. The first unit
	// that comes to the point counts: a unit of a request, of a handler, or of oncebox itself, which parks a message in a unit, for example.
	//
	// In a leased handler it is the COMMIT of inbox.StepInUnit, of idempotency.StepTx, or of another unit that the handler opens. If the handler opens
	// none, it is the COMMIT that settles the message, or the storing of the answer to the request. The result of a Step that was stored before
	// stays. A StepOnce, and a step.AtMostOnce, come to the point before the call, when the beginning is not stored yet. A function
	// of AtMostOnce that panics before its call shows what happens after a crash between the two.
	BeforeCommit Point = "before commit"
	// AfterCommit is when PostgreSQL has committed a unit of work, and the process has not read the answer: everything is in the database, but the
	// caller does not know. The caller repeats a request, and the broker delivers a message again. In a leased handler it is the same unit as for
	// BeforeCommit. A leased request that opens no unit never comes to AfterCommit, because its answer is stored without a unit.
	AfterCommit Point = "after commit"
	// AfterCall is when a Step of a leased handler or a leased request has made its call to another system, and its result is not stored: the next
	// run makes the call again with the same key. After a StepOnce, or a step.AtMostOnce, the call is not made again. StepInUnit and StepTx make no
	// call, and have BeforeCommit instead.
	AfterCall Point = "after call"
	// BeforePublish is when the relay has read events, and the broker has none of them yet: they are published later.
	BeforePublish Point = "before publish"
	// AfterPublish is when the broker has stored events, and the outbox does not know that yet: they are
	// published again.
	AfterPublish Point = "after publish"
	// BeforeAck is when a consumer has committed its work for a message and has not acknowledged it: the
	// broker delivers it again.
	BeforeAck Point = "before acknowledge"
)

// CrashAt makes the process of the service die once, when it next comes to a point. The next [Kit.Drain] starts the service anew and goes
// on, so that a test shows in a few lines that the service loses nothing and does nothing twice:
//
//	kit.CrashAt(oncetest.AfterPublish)
//	placeOrder(kit.App, "o-1")
//	kit.Drain()
//	require.Equal(t, 1, invoices(kit.DB))
//
// The process loses its connections at that point: transactions are rolled back, the broker takes back what was not acknowledged, and
// every later use of its pool or its broker returns an error, at once. So does the call of the test that came to the point. Which error,
// or which answer of an HTTP handler, means nothing: nobody would have got it. Call [Kit.Drain], and repeat the request as its caller would.
// [Kit.DB] goes on.
//
// The new start calls the function that was given to [New] again and sets [Kit.App]. So make there what needs the App or the pool, an
// HTTP handler for example, and make tables with CREATE TABLE IF NOT EXISTS. What the function does not make outlives the crash: global
// variables, and connections to other services. The leases of the dead process have run out by then.
//
// Two calls make the service crash twice. The second crash is of the process that [Kit.Drain] has started after the first one. The
// test fails at its end if the service never came to a point.
// Without a broker there are BeforeCommit, AfterCommit and AfterCall only.
func (k *Kit) CrashAt(p Point) {
	k.t.Helper()
	if !slices.Contains([]Point{BeforeCommit, AfterCommit, AfterCall, BeforePublish, AfterPublish, BeforeAck}, p) {
		k.t.Fatalf("oncetest: CrashAt(%q): there is no such point: use a constant of type oncetest.Point", p)
	}
	k.plan.add(p)
}

// plan is the list of crashes that have not happened yet.
type plan struct {
	mu     sync.Mutex
	points []Point
}

func (l *plan) add(p Point) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.points = append(l.points, p)
}

// take reports whether a crash is planned at p, and removes it from the plan.
func (l *plan) take(p Point) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := slices.Index(l.points, p)
	if n < 0 {
		return false
	}
	l.points = slices.Delete(l.points, n, n+1)
	return true
}

func (l *plan) left() []Point {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.points)
}
