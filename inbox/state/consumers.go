package state

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/pauses"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/once"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/operator"
)

const (
	// listConsumers lists the consumers that have run, except for forgotten ones.
	listConsumers = `
SELECT c.consumer, ` + lastBeat + `, c.stopped_at, clock_timestamp() FROM {schema}.inbox_consumer c WHERE c.beat_at IS NOT NULL ORDER BY c.consumer`

	listProcesses = `
SELECT consumer, topic, process::text, name, state, since, unsettled, progress_at, error, failed_at, handled, failed, seen_at,
	seen_until >= clock_timestamp(), clock_timestamp()
FROM {schema}.inbox_process ORDER BY consumer, topic, name, process`

	listSubscriptions = `
SELECT consumer, topic, coalesce(backlog, 0), coalesce(connections, 0), coalesce(unattended, 0), missing, asked_at, stands_since, many_since,
	lower(backlog_precision), oldest_at, error, failed_at, clock_timestamp()
FROM {schema}.inbox_topic WHERE subscribed ORDER BY consumer, topic`

	// listLimits prefers what a process has reported last.
	listLimits = `
SELECT DISTINCT ON (consumer) consumer, coalesce(max_attempts, 0), coalesce(extract(epoch FROM give_up_after), 0)::float8,
	coalesce(extract(epoch FROM deploy_wait), 0)::float8
FROM {schema}.inbox_process ORDER BY consumer, seen_until DESC`
)

// unseenAfter is the age of its heartbeat from which a consumer without other reports counts as gone.
const unseenAfter = 3 * time.Minute

// Consumer is the state of a consumer, for operators.
type Consumer struct {
	Consumer string
	// SeenAt is when a process last reported that it runs the consumer, or that it ends, by the clock of the database. Runs says that a
	// process runs it now.
	SeenAt time.Time
	Runs   bool
	// Stopped says that its last process ended in order, at SeenAt. Otherwise, if it does not run, it was killed or has lost its database.
	Stopped bool
	// Pause is the pause of the consumer, the zero value if it is not paused. All generations of a read model have the pause of the read model.
	Pause Pause
	// Resumed is when its last pause ended, by itself or by an operator. Zero: not within the last five minutes.
	Resumed time.Time
	// Topics lists the topics that it handles, by name. Empty for a consumer that has only a handler in this module (inbox.Inbox.Wrap).
	Topics []Topic

	now time.Time // by the clock of the database
}

// Pause is a pause of a consumer in all processes, see inbox/consumers.Consumers.Pause.
type Pause = pauses.Pause

// Family returns the name of the read model whose generation a consumer is, and for other consumers their own name. Operators pause a read model by it.
func Family(consumer string) string { return store.Family(consumer) }

// Topic is the state of a consumer at a topic.
type Topic struct {
	Topic string
	// Processes lists the processes that run it, by name. A process that was killed disappears after a minute.
	Processes []Process
	// Waiting is the state of its messages at the broker.
	Waiting Waiting
}

// partly is the state of a process that has some of its connections.
const partly = "partly"

// isStored reports whether there is no broker: the database has the messages.
func (t *Topic) isStored() bool {
	return slices.ContainsFunc(t.Processes, func(p Process) bool { return p.State == "stored" })
}

// Process is the report of a process about a consumer.
type Process struct {
	// ID is another one each time that the program starts, Name its host and process id.
	ID, Name string
	// State is connected, partly (some partitions have no connection), away (it has no connection, or is not subscribed), paused (see Consumer.Pause),
	// or stored (there is no broker).
	State string
	// Since is when the process entered this state. For away and partly it is when the first connection was lost.
	Since time.Time
	// Unsettled is how many messages it has in hand. Progress is when it last settled a message, or received the oldest of these; zero if
	// it has had none.
	Unsettled int
	Progress  time.Time
	// Error is the reason why it last had no connection, and FailedAt when it last reported that.
	Error    string
	FailedAt time.Time
	// Handled is how many messages of the consumer the process has handled since it began, at all topics, and Failed how many tries failed or made a
	// dead letter.
	Handled, Failed int64
}

// Waiting is the answer of a broker about a subscription.
type Waiting struct {
	// Known says that the answer is at most a minute old. The other fields are the answer of the time At, which is zero if there never was one.
	Known bool
	At    time.Time
	// Messages is the number of unsettled messages, including messages that processes have in hand, and Precision how far to trust it.
	Messages  int64
	Precision count.Precision
	// Oldest is when the oldest of them was published, by the clock of its publisher. Zero: none waits, or the broker does not report it.
	Oldest time.Time
	// Connections is the number of connected consumers, Unattended the number of partitions that have messages and no consumer.
	Connections, Unattended int
	// Missing says that the subscription does not exist.
	Missing bool
	// Stands is the time since which messages wait and none was settled. Zero if messages are being settled, or none wait.
	Stands time.Time
	// Many is the time since which more than [Many] messages wait. Zero if no more wait.
	Many time.Time
	// Error is why the latest request failed, "" if it was answered.
	Error string
}

// Late returns how long the oldest message had waited when the broker answered. 0: none waits, or it is not known.
func (w *Waiting) Late() time.Duration {
	if w.Messages == 0 || w.Oldest.IsZero() {
		return 0
	}
	return max(w.At.Sub(w.Oldest), 0)
}

// IsOutdated reports whether an answer of a broker says less than it seems to: it is older than the end of the consumer's pause, or than moved, the time at
// which events were last set in motion. A broker that has not answered for a minute is another case, see [Consumer.Unknown].
func (c *Consumer) IsOutdated(moved time.Time) bool {
	since := later(c.Resumed, moved)
	return !c.Pause.IsSet() && slices.ContainsFunc(c.Topics, func(t Topic) bool { return t.Waiting.Known && t.Waiting.At.Before(since) && !t.isStored() })
}

// Consumers lists the consumers that have ever run on this database, by their names, except for consumers that were
// forgotten (inbox/consumers.Consumers.Forget). A generation of a read model is a consumer of its own, and its topics are those of the read model.
func (r *Reader) Consumers(ctx context.Context) ([]Consumer, error) {
	return once.Do(ctx, once.Key{Of: r.h, What: "consumers"}, r.consumers)
}

func (r *Reader) consumers(ctx context.Context) ([]Consumer, error) {
	all := &states{list: map[string]*Consumer{}}
	for _, read := range []func(context.Context, *states) error{r.readBeats, r.readProcesses, r.readSubscriptions, r.readPauses} {
		if err := read(ctx, all); err != nil {
			return nil, store.Wrap("list consumers", err)
		}
	}
	return all.sorted(), nil
}

// Limits returns when each consumer gives a message up, by its name, for a read model without its generation. A consumer that no process has run within a
// day is missing.
func (r *Reader) Limits(ctx context.Context) (map[string]operator.Limit, error) {
	all := map[string]operator.Limit{}
	err := pgsql.Each(r.h.AdHoc().Query(ctx, r.h.DB(ctx), listLimits), func(scan pgsql.Scan) error {
		var consumer string
		var l operator.Limit
		var lasting, deploy float64
		if err := scan(&consumer, &l.Attempts, &lasting, &deploy); err != nil {
			return err
		}
		l.For, l.ForBuild = seconds(lasting), seconds(deploy)
		all[consumer] = l
		return nil
	})
	return all, store.Wrap("read when consumers give up", err)
}

// readBeats reads the heartbeats, which also name consumers that only handle parked messages.
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

// readProcesses reads the reports of all processes, old ones included: they show when a process was last seen.
func (r *Reader) readProcesses(ctx context.Context, all *states) error {
	return pgsql.Each(r.h.Patient.Query(ctx, r.h.DB(ctx), listProcesses), func(scan pgsql.Scan) error {
		var p process
		var progress, failed *time.Time
		err := scan(&p.consumer, &p.topic, &p.ID, &p.Name, &p.State, &p.Since, &p.Unsettled, &progress, &p.Error, &failed, &p.Handled, &p.Failed, &p.seen,
			&p.alive, &all.now)
		if err != nil {
			return err
		}
		p.Progress, p.FailedAt = zero(progress), zero(failed)
		all.processes = append(all.processes, p)
		return nil
	})
}

// readSubscriptions reads the last answers of the broker. An error that is older than the last answer is over.
func (r *Reader) readSubscriptions(ctx context.Context, all *states) error {
	return pgsql.Each(r.h.Patient.Query(ctx, r.h.DB(ctx), listSubscriptions), func(scan pgsql.Scan) error {
		var s subscriptionRow
		var at, stands, many, oldest, failed *time.Time
		var precision string
		err := scan(&s.consumer, &s.topic, &s.Messages, &s.Connections, &s.Unattended, &s.Missing, &at, &stands, &many, &precision,
			&oldest, &s.Error, &failed, &all.now)
		if err != nil {
			return err
		}
		if err := s.Precision.UnmarshalText([]byte(precision)); err != nil {
			return err
		}
		s.At, s.Stands, s.Many, s.Oldest = zero(at), zero(stands), zero(many), zero(oldest)
		if !zero(failed).After(s.At) {
			s.Error = "" // it has answered since
		}
		all.subscriptions = append(all.subscriptions, s)
		return nil
	})
}

func (r *Reader) readPauses(ctx context.Context, all *states) (err error) {
	if all.pauses, err = pauses.Read(ctx, r.h); err == nil {
		all.ended, err = pauses.Ended(ctx, r.h)
	}
	return err
}

// zero returns the time, or the zero time for nil.
func zero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// sortedStates returns the consumers sorted by name.
func sortedStates(list map[string]*Consumer) []Consumer {
	out := make([]Consumer, 0, len(list))
	for _, name := range slices.Sorted(maps.Keys(list)) {
		out = append(out, *list[name])
	}
	return out
}
