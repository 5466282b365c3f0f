package state

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// listConsumers are the consumers that have run, those that are forgotten apart.
	listConsumers = `SELECT consumer, beat_at, stopped_at, clock_timestamp() FROM {schema}.inbox_consumer ORDER BY consumer`

	listProcesses = `
SELECT consumer, topic, name, state, since, unsettled, progress_at, error, failed_at, seen_at, seen_until >= clock_timestamp(), clock_timestamp()
FROM {schema}.inbox_process ORDER BY consumer, topic, name, process`

	listSubscriptions = `
SELECT consumer, topic, coalesce(backlog, 0), coalesce(connections, 0), coalesce(unattended, 0), missing, asked_at, stands_since, error, failed_at,
	clock_timestamp()
FROM {schema}.inbox_subscription ORDER BY consumer, topic`
)

// unseenAfter is when a consumer counts as gone that only its heartbeat tells of.
const unseenAfter = 3 * time.Minute

// Consumer is what an operator sees of a consumer.
type Consumer struct {
	Consumer string
	// SeenAt is when a process last said that it runs it, or that it ends, by the clock of the database. Runs says that one does.
	SeenAt time.Time
	Runs   bool
	// Stopped says that its last process ended in order, at SeenAt. Otherwise, if it does not run, it was killed or has lost its database.
	Stopped bool
	// Topics are those that it handles, by name. Empty for a consumer that has only a handler in this module (inbox.Inbox.Wrap).
	Topics []Topic

	now time.Time // by the clock of the database
}

// Topic is what is known of a consumer at a topic.
type Topic struct {
	Topic string
	// Processes are those that run it, by name. One that was killed is missing from a minute later on.
	Processes []Process
	// Waiting is what the broker has for it.
	Waiting Waiting
}

// Process is what a process has said of a consumer.
type Process struct {
	Name string
	// State is connected, partly (some partitions have no connection), away (it has no connection, or is not subscribed), paused (inbox.Inbox.Pause),
	// or stored (there is no broker).
	State string
	// Since is since when it is so.
	Since time.Time
	// Unsettled is how many messages it has in hand, Progress when it settled one last, or received the oldest of them. Zero: it has had none.
	Unsettled int
	Progress  time.Time
	// Error is why it last had no connection, and FailedAt when that was last so.
	Error    string
	FailedAt time.Time
}

// Waiting is what a broker said of a subscription.
type Waiting struct {
	// Known says that it said so within the last minute. Otherwise the rest is what it said at At, zero if it never has, and Error is why it has not
	// since then, as far as that is known.
	Known bool
	At    time.Time
	// Messages wait and are not settled, those that processes have in hand included. A broker that stores messages in batches may count those.
	Messages int64
	// Connections is how many consumers are connected, Unattended how many partitions have messages and no consumer.
	Connections, Unattended int
	// Missing says that there is no such subscription.
	Missing bool
	// Stands is since when messages have waited and none was settled. Zero: that is not so.
	Stands time.Time
	Error  string
}

// Consumers lists the consumers that have ever run on this database, by their names, without those that were given up by inbox.Inbox.Forget. A
// generation of a read model is a consumer of its own, and what is known of its topics is that of the read model.
func (r *Reader) Consumers(ctx context.Context) ([]Consumer, error) {
	all := &states{list: map[string]*Consumer{}}
	for _, read := range []func(context.Context, *states) error{r.readBeats, r.readProcesses, r.readSubscriptions} {
		if err := read(ctx, all); err != nil {
			return nil, wrapErr("list consumers", err)
		}
	}
	return all.sorted(), nil
}

func (r *Reader) readBeats(ctx context.Context, all *states) error {
	return pgsql.Each(r.h.Patient.Query(ctx, r.h.DB(ctx), listConsumers), func(scan pgsql.Scan) error {
		var name string
		var beat time.Time
		var stopped *time.Time
		if err := scan(&name, &beat, &stopped, &all.now); err != nil {
			return err
		}
		all.beats = append(all.beats, beaten{name, beat, zero(stopped)})
		return nil
	})
}

func (r *Reader) readProcesses(ctx context.Context, all *states) error {
	return pgsql.Each(r.h.Patient.Query(ctx, r.h.DB(ctx), listProcesses), func(scan pgsql.Scan) error {
		var p process
		var progress, failed *time.Time
		err := scan(&p.consumer, &p.topic, &p.Name, &p.State, &p.Since, &p.Unsettled, &progress, &p.Error, &failed, &p.seen, &p.alive, &all.now)
		if err != nil {
			return err
		}
		p.Progress, p.FailedAt = zero(progress), zero(failed)
		all.processes = append(all.processes, p)
		return nil
	})
}

func (r *Reader) readSubscriptions(ctx context.Context, all *states) error {
	return pgsql.Each(r.h.Patient.Query(ctx, r.h.DB(ctx), listSubscriptions), func(scan pgsql.Scan) error {
		var s subscriptionRow
		var at, stands, failed *time.Time
		err := scan(&s.consumer, &s.topic, &s.Messages, &s.Connections, &s.Unattended, &s.Missing, &at, &stands, &s.Error, &failed, &all.now)
		if err != nil {
			return err
		}
		s.At, s.Stands = zero(at), zero(stands)
		if !zero(failed).After(s.At) {
			s.Error = "" // it has answered since
		}
		all.subscriptions = append(all.subscriptions, s)
		return nil
	})
}

// zero is the time, or the zero one.
func zero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// sortedStates returns them by name.
func sortedStates(list map[string]*Consumer) []Consumer {
	out := make([]Consumer, 0, len(list))
	for _, name := range slices.Sorted(maps.Keys(list)) {
		out = append(out, *list[name])
	}
	return out
}
