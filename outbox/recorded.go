package outbox

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// fatesOf returns how transactions ended; "" for a transaction that the server has forgotten.
	fatesOf = `SELECT x, coalesce(pg_xact_status(x::xid8), '') FROM unnest($1::text[]) x`

	// codeFutureXID is the error of a server that has not given out the id yet, so it is not the server of
	// the transaction.
	codeFutureXID = "22023"

	// manyOpen is the number of waiting transactions from which the server is asked even if no metrics are collected.
	manyOpen = 1000

	// fatesTimeout is how long a collection of metrics waits for the answer.
	fatesTimeout = time.Second
)

// recorded counts the events of transactions that have committed (ADR 0039). A unit of work reports its commit by
// [Store.Committed]. A transaction in which [Store.Add] was called reports nothing: its id is kept, and when metrics
// are collected, the server is asked what became of it.
type recorded struct {
	totals otelx.TenantCounter
	fates  func(ctx context.Context, xids []string) (map[string]string, error) // asks the server how transactions ended

	mu     sync.Mutex
	open   map[string]tally // by transaction id
	asking bool
}

// tally has the number of events for each topic and tenant.
type tally map[[2]string]int64

func (t tally) add(n int64, topic, tenant string) { t[[2]string{topic, tenant}] += n }

// count calls add with the number of events that count, once for each run of events with the same topic and tenant. The events of a unit are mostly
// one run.
func count(evs []event.Envelope, counts func(*event.Envelope) bool, add func(n int64, topic, tenant string)) {
	for i := 0; i < len(evs); {
		first, n := &evs[i], int64(0)
		for ; i < len(evs) && evs[i].Topic == first.Topic && evs[i].TenantID == first.TenantID; i++ {
			if counts(&evs[i]) {
				n++
			}
		}
		if n > 0 {
			add(n, first.Topic, first.TenantID)
		}
	}
}

func newRecorded(c *Config, fates func(context.Context, []string) (map[string]string, error)) *recorded {
	r := &recorded{fates: fates, open: map[string]tally{}}
	r.totals.Show(otelx.Meter(c.Telemetry.MeterProvider, "outbox"), "oncebox.outbox.recorded",
		"Events of transactions that have committed, by topic and tenant; the 50 first, and other", r.collected)
	return r
}

// committed counts the events that a unit of work has committed. An event that repeats another one has no number. If
// the answer to COMMIT was lost, no event has a number, and events that could be repetitions are left out.
func (r *recorded) committed(evs []event.Envelope) {
	count(evs, func(e *event.Envelope) bool { return e.Sequence > 0 || e.Delivery.DedupKey == "" }, r.totals.Add)
}

// added keeps the events of a transaction that does not report its commit, until its outcome is known.
func (r *recorded) added(xid string, evs []event.Envelope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.open[xid]
	if of == nil {
		of = tally{}
	}
	count(evs, func(e *event.Envelope) bool { return e.Sequence > 0 }, of.add)
	if len(of) > 0 {
		r.open[xid] = of
	}
	if len(r.open) >= manyOpen && !r.asking {
		r.asking = true
		go r.settleNow()
	}
}

// settleNow is settle for a process that collects no metrics.
func (r *recorded) settleNow() {
	ctx, cancel := context.WithTimeout(context.Background(), fatesTimeout)
	defer cancel()
	r.settle(ctx, r.waiting())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asking = false
}

// waiting returns the ids of transactions whose outcome is not known yet.
func (r *recorded) waiting() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.open))
}

// collected settles transactions before metrics are read. It waits only for a limited time: the metrics provider holds
// a lock meanwhile, which code that runs with a statement, such as a hook of the pool, may need.
func (r *recorded) collected(ctx context.Context) {
	xids := r.waiting()
	if len(xids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, fatesTimeout)
	go func() {
		defer cancel()
		r.settle(ctx, xids)
	}()
	<-ctx.Done()
}

// settle counts the transactions that have committed since, and forgets all that have ended. If the server does not answer, a later call asks again,
// unless the server can never know, or so many transactions wait that memory is at stake.
func (r *recorded) settle(ctx context.Context, xids []string) {
	fates, err := r.fates(ctx, xids)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && (pgerr.Code(err) == codeFutureXID || len(r.open) >= manyOpen) {
		clear(r.open)
	}
	for xid, fate := range fates {
		if fate == "committed" {
			for pair, n := range r.open[xid] {
				r.totals.Add(n, pair[0], pair[1])
			}
		}
		if fate != "in progress" {
			delete(r.open, xid)
		}
	}
}

// fates asks the server how transactions ended.
func fates(ctx context.Context, box *outboxdb.Handle, xids []string) (map[string]string, error) {
	fates := make(map[string]string, len(xids))
	err := pgsql.Each(box.Run.Query(ctx, box.DB, fatesOf, xids), func(scan pgsql.Scan) error {
		var xid, fate string
		if err := scan(&xid, &fate); err != nil {
			return err
		}
		fates[xid] = fate
		return nil
	})
	return fates, err
}
