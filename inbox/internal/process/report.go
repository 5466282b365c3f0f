package process

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/presence"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

const (
	// reportLooks is how often a process checks whether the state of its consumers has changed.
	reportLooks = time.Second
	// reportLife is how long a report is valid without being renewed.
	reportLife = 3 * store.ReportInterval
	// reportWithin bounds the statement that writes a report.
	reportWithin = 5 * time.Second
	// stopWithin bounds the statement that reports the end of a process, so that a database that hangs does not delay the end.
	stopWithin = 2 * time.Second
)

const (
	// report writes the report of a process. While connections are missing, all of them or some, the beginning stays: connections come back one by one,
	// and the fault is the same. Times are sent as ages in microseconds, so that the stored times follow the clock of the
	// database; -1: never.
	report = `
INSERT INTO {schema}.inbox_process AS p (consumer, topic, process, name, state, since, unsettled, progress_at, error, failed_at, seen_until,
	handled, failed, max_attempts, give_up_after, deploy_wait)
SELECT u.consumer, u.topic, $1::uuid, $2::text, u.state, t.now - u.age * interval '1 microsecond', u.unsettled,
	CASE WHEN u.progress >= 0 THEN t.now - u.progress * interval '1 microsecond' END, u.error, CASE WHEN u.error <> '' THEN t.now END, t.now + $10::interval,
	u.handled, u.failed, nullif(u.max_attempts, 0), nullif(u.give_up, 0) * interval '1 microsecond', nullif(u.deploy, 0) * interval '1 microsecond'
FROM unnest($3::text[], $4::text[], $5::text[], $6::bigint[], $7::integer[], $8::bigint[], $9::text[],
		$11::bigint[], $12::bigint[], $13::integer[], $14::bigint[], $15::bigint[])
	u(consumer, topic, state, age, unsettled, progress, error, handled, failed, max_attempts, give_up, deploy), (SELECT clock_timestamp() AS now) t
ON CONFLICT (consumer, topic, process) DO UPDATE SET state = excluded.state,
	since = CASE WHEN p.state = excluded.state OR p.state IN ('AWAY', 'PARTLY') AND excluded.state IN ('AWAY', 'PARTLY')
		THEN least(p.since, excluded.since) ELSE excluded.since END,
	unsettled = excluded.unsettled, progress_at = excluded.progress_at, error = coalesce(nullif(excluded.error, ''), p.error),
	failed_at = coalesce(excluded.failed_at, p.failed_at), seen_at = excluded.seen_at, seen_until = excluded.seen_until,
	handled = excluded.handled, failed = excluded.failed`

	// stopReporting removes the reports of the process, and notes which consumers no process runs any more. Reports of processes that were
	// killed stay for a day.
	stopReporting = `
WITH gone AS (
	DELETE FROM {schema}.inbox_process WHERE process = $1::uuid OR seen_until < clock_timestamp() - interval '1 day' RETURNING consumer, process
)
UPDATE {schema}.inbox_consumer c SET stopped_at = clock_timestamp()
WHERE c.beat_at IS NOT NULL AND ` + store.FamilyOfConsumer + ` IN (SELECT consumer FROM gone WHERE process = $1::uuid)
	AND NOT EXISTS (SELECT FROM {schema}.inbox_process p
		WHERE p.consumer = ` + store.FamilyOfConsumer + ` AND p.process <> $1::uuid AND p.seen_until >= clock_timestamp())`
)

// States of a process, as the table has them.
const (
	stateConnected = "CONNECTED"
	statePartly    = "PARTLY"
	stateAway      = "AWAY"
	statePaused    = "PAUSED"
	stateStored    = "STORED"
)

// reported is the report of a process about one of its consumers.
type reported struct {
	consumer, topic, state string
	since                  time.Time
	unsettled              int
	progress               time.Time
	err                    string
	handled, failed        int64 // of the consumer, at all of its topics
	limit                  operator.Limit
}

// tally counts what this process did for a consumer.
type tally struct{ handled, failed atomic.Int64 }

// Count adds messages of an outcome, as oncebox.inbox.messages counts them, to what this process reports of a consumer.
func (c *Consumers) Count(consumer, outcome string, n int64) {
	switch outcome {
	case "handled", "skipped":
		c.tallyOf(store.Family(consumer)).handled.Add(n)
	case "failed", "dead":
		c.tallyOf(store.Family(consumer)).failed.Add(n)
	}
}

// tallyOf returns the tally of a consumer, and makes it if there is none.
func (c *Consumers) tallyOf(name string) *tally {
	t, ok := c.tallies.Load(name)
	if !ok {
		t, _ = c.tallies.LoadOrStore(name, &tally{})
	}
	return t.(*tally) //nolint:forcetypeassert // nothing else is stored
}

// RunReporting stores the state of this process's consumers and of their connections, until ctx is done, so that operators see it: see
// state.Reader.Consumers. Then it notes that they have ended. broker is that of inbox.Inbox.Receive, nil if there is none. waits returns the
// reason why Receive has not begun, nil if it has. It is a part of inbox.Inbox.Run.
//
// It records that the consumers belong to the service only when the broker has accepted all of them, so that a refused start leaves nothing
// behind. A [*messaging.SourceError] means that a consumer belongs to another service.
func (c *Consumers) RunReporting(ctx context.Context, broker messaging.Subscriber, waits func() error) error {
	r := &reporter{all: c, stored: broker == nil, waits: waits, name: presence.Name(), began: time.Now()}
	defer r.stop(ctx)
	failing := false
	for ctx.Err() == nil {
		err := r.round(ctx)
		// The consumer belongs to another service, so this process must not go on.
		if _, refused := errors.AsType[*messaging.SourceError](err); refused {
			return err
		}
		// Only the first failure in a row is logged: operators see a missing report by its age.
		if err != nil && !failing && ctx.Err() == nil {
			c.h.Log.WarnContext(ctx, "oncebox: the state of the consumers of this process could not be stored; the next try follows", "error", err)
		}
		failing = err != nil
		// After a failure the next try comes later, so that a database in trouble is not asked every second.
		pause := reportLooks
		if failing {
			pause = store.ReportInterval / 4
		}
		_ = backoff.Wait(ctx, pause) // an error is the end of ctx
	}
	return nil
}

// reporter is the state of one call of RunReporting.
type reporter struct {
	all    *Consumers
	stored bool
	waits  func() error
	name   string
	began  time.Time

	said    []reported
	saidAt  time.Time
	settled bool // it is recorded that the consumers belong to the service
}

// round writes a report if one is due: when the state has changed, or every store.ReportInterval.
func (r *reporter) round(ctx context.Context) error {
	now := r.now()
	// Recorded once. Before that a refused start would leave its name behind.
	if !r.settled && allIn(now) {
		if err := r.all.SubscribeAll(ctx); err != nil {
			return err
		}
		r.settled = true
	}
	if len(now) == 0 || time.Since(r.saidAt) < store.ReportInterval && alike(now, r.said) {
		return nil
	}
	if err := r.write(ctx, now); err != nil {
		return err
	}
	r.said, r.saidAt = now, time.Now()
	return nil
}

// now returns the reports of all consumers.
func (r *reporter) now() []reported {
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	list := make([]reported, len(r.all.all))
	for n, c := range r.all.all {
		list[n] = r.of(c)
	}
	return list
}

// of returns the report of a consumer. The caller holds the mutex.
func (r *reporter) of(c *Consumer) reported {
	out := reported{consumer: c.Subscription.Name, topic: c.Subscription.Topic, state: stateStored, since: r.began, limit: c.Limit}
	done := r.all.tallyOf(out.consumer)
	out.handled, out.failed = done.handled.Load(), done.failed.Load()
	if !r.stored {
		// Until the loop exists, the connection counts as missing, with the reason of the caller.
		is := messaging.Connection{Parts: 1, Away: 1}
		if c.loop != nil {
			is = c.loop.Connection()
			p, _ := c.loop.Progress()
			out.unsettled, out.progress = p.Unsettled, p.Last
		}
		if is.Since.IsZero() {
			is.Since = r.began
		}
		if is.Err == nil && is.Away > 0 && r.waits != nil {
			is.Err = r.waits()
		}
		out.since = is.Since
		switch {
		case is.IsAway():
			out.state = stateAway
		case is.Away > 0:
			out.state = statePartly
		default:
			out.state = stateConnected
		}
		if is.Err != nil {
			out.err = is.Err.Error()
		}
	}
	// A pause is reported only while there is a connection: without one, the outage is what an operator must see.
	if at, paused := r.all.paused[out.consumer]; paused && out.state != stateAway {
		out.state, out.since = statePaused, at
	}
	return out
}

// allIn reports whether the broker has accepted all consumers.
func allIn(list []reported) bool {
	for _, c := range list {
		if c.state == stateAway {
			return false
		}
	}
	return len(list) > 0
}

// alike reports whether nothing has changed that an operator should see at once.
func alike(a, b []reported) bool {
	if len(a) != len(b) {
		return false
	}
	for n := range a {
		if a[n].state != b[n].state || a[n].err != b[n].err {
			return false
		}
	}
	return true
}

// write stores the reports. It does not stop when ctx ends: the server may go on with a cancelled statement, and could then store a report
// after stop has removed all of them.
func (r *reporter) write(ctx context.Context, list []reported) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportWithin)
	defer cancel()
	n := len(list)
	consumers, topics, states, errs := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	ages, progress, unsettled := make([]int64, n), make([]int64, n), make([]int64, n)
	handled, failed := make([]int64, n), make([]int64, n)
	tries, lasting, deploy := make([]int64, n), make([]int64, n), make([]int64, n)
	for n, c := range list {
		consumers[n], topics[n], states[n], errs[n] = c.consumer, c.topic, c.state, c.err
		ages[n], progress[n], unsettled[n] = time.Since(c.since).Microseconds(), -1, int64(c.unsettled)
		handled[n], failed[n] = c.handled, c.failed
		tries[n], lasting[n], deploy[n] = int64(max(c.limit.Attempts, 0)), max(c.limit.For, 0).Microseconds(), max(c.limit.ForBuild, 0).Microseconds()
		if !c.progress.IsZero() {
			progress[n] = time.Since(c.progress).Microseconds()
		}
	}
	_, err := r.all.h.SQL.Exec(ctx, r.all.h.DB(ctx), report, r.all.h.Owner, r.name,
		consumers, topics, states, ages, unsettled, progress, errs, reportLife, handled, failed, tries, lasting, deploy)
	if err != nil {
		return fmt.Errorf("inbox: store the state of the consumers: %w", pgerr.Explain(err))
	}
	return nil
}

// stop reports that the process ends. If it fails, the reports expire by themselves.
func (r *reporter) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	if _, err := r.all.h.SQL.Exec(ctx, r.all.h.DB(ctx), stopReporting, r.all.h.Owner); err != nil {
		r.all.h.Log.WarnContext(ctx, "oncebox: the end of the consumers of this process could not be stored; "+
			"operators see them as running for a minute longer", "error", err)
	}
}
