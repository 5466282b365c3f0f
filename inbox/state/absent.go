package state

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/once"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// lastBeat is when a process of the consumer last noted that it runs. A process that ends cancels its beat, but the server may go on with the
// statement, and store it after the end. So a beat within five seconds of the end counts as one before it.
const lastBeat = `CASE WHEN c.beat_at - c.stopped_at < '5 seconds' THEN least(c.beat_at, c.stopped_at) ELSE c.beat_at END`

// absentConsumers finds the consumers with parked messages that no process runs: the last process has ended in order or was killed, or a
// process that notes once a minute that it runs the consumer has stopped to do so. LIMIT keeps the planner to one look-up for each consumer. It would
// read all keys.
const absentConsumers = `
SELECT c.consumer, greatest(c.beat_at, c.stopped_at) FROM {schema}.inbox_consumer c
WHERE c.beat_at IS NOT NULL AND (SELECT true FROM {schema}.inbox_key k WHERE k.consumer = c.consumer LIMIT 1)
	AND (c.beat_at < clock_timestamp() - interval '3 minutes'
	OR (c.stopped_at >= ` + lastBeat + `
			OR EXISTS (SELECT FROM {schema}.inbox_process p WHERE p.consumer = ` + store.FamilyOfConsumer + ` AND p.seen_until < clock_timestamp()))
		AND NOT EXISTS (SELECT FROM {schema}.inbox_process p WHERE p.consumer = ` + store.FamilyOfConsumer + ` AND p.seen_until >= clock_timestamp()))
ORDER BY c.beat_at, c.consumer`

// Absent returns the consumers that have parked messages and that no process runs, with the time when one was last seen running, by the clock of
// the database. A consumer is absent as soon as its last process has ended in order, a minute after that was
// killed, and after three minutes if it only handles what is parked.
func (r *Reader) Absent(ctx context.Context) (map[string]time.Time, error) {
	return once.Do(ctx, once.Key{Of: r.h, What: "absent"}, r.absent)
}

func (r *Reader) absent(ctx context.Context) (map[string]time.Time, error) {
	list := map[string]time.Time{}
	err := pgsql.Each(r.h.Patient.Query(ctx, r.h.DB(ctx), absentConsumers), func(scan pgsql.Scan) error {
		var consumer string
		var seen time.Time
		if err := scan(&consumer, &seen); err != nil {
			return err
		}
		list[consumer] = seen
		return nil
	})
	return list, store.Wrap("look for absent consumers", err)
}

// AbsentTopic is a topic with parked messages that no process handles.
type AbsentTopic struct {
	Consumer, Topic string
	// Since is when the oldest waiting message became due, by the clock of the database.
	Since time.Time
}

const (
	// beActive notes that consumers run, once a minute. For a consumer that was away for more than an hour, active_at stays unchanged until
	// it has been back for a day: copies of the messages that it handled last may come only now, so their entries are kept longer.
	beActive = `
INSERT INTO {schema}.inbox_consumer AS c (consumer) SELECT u FROM unnest($1::text[]) u ORDER BY u
ON CONFLICT (consumer) DO UPDATE SET
	active_at = CASE WHEN excluded.beat_at - c.beat_at > '1 hour' OR c.back_at > excluded.beat_at - interval '1 day' THEN c.active_at
		ELSE excluded.beat_at END,
	back_at = CASE WHEN excluded.beat_at - c.beat_at > '1 hour' THEN excluded.beat_at
		WHEN c.back_at > excluded.beat_at - interval '1 day' THEN c.back_at END,
	beat_at = excluded.beat_at
WHERE c.beat_at IS NULL OR c.beat_at < excluded.beat_at - interval '1 minute'`

	// beTopics notes which topics of its consumers a process handles, once a minute.
	beTopics = `
INSERT INTO {schema}.inbox_topic AS t (topic, consumer, subscribed, handled_at)
SELECT u.topic, u.consumer, false, clock_timestamp() FROM unnest($1::text[], $2::text[]) u(consumer, topic) ORDER BY u.topic, u.consumer
ON CONFLICT (topic, consumer) DO UPDATE SET handled_at = excluded.handled_at
WHERE t.handled_at IS NULL OR t.handled_at < excluded.handled_at - interval '1 minute'`

	// absentTopics reads, by the index, the key of each topic that has been due for longest. A topic that is handled has no key that is
	// late.
	absentTopics = store.TopicsOfKeys + `
SELECT s.consumer, s.topic, first.due_at FROM seen s CROSS JOIN LATERAL (
	SELECT k.due_at FROM {schema}.inbox_key k WHERE k.consumer = s.consumer AND k.topic = s.topic AND k.state <> 'DEAD'
	ORDER BY k.due_at LIMIT 1) first
WHERE first.due_at < clock_timestamp() - interval '3 minutes' AND NOT EXISTS (
	SELECT FROM {schema}.inbox_topic t
	WHERE t.consumer = s.consumer AND t.topic IN (s.topic, '') AND t.handled_at >= clock_timestamp() - interval '3 minutes')
ORDER BY s.consumer, s.topic`
)

// AbsentTopics returns the topics whose parked messages have been due for three minutes and that no process handles, though processes run
// their consumer. Consumers that [Reader.Absent] returns are left out.
func (r *Reader) AbsentTopics(ctx context.Context) ([]AbsentTopic, error) {
	return once.Do(ctx, once.Key{Of: r.h, What: "absent topics"}, r.allAbsentTopics)
}

func (r *Reader) allAbsentTopics(ctx context.Context) ([]AbsentTopic, error) {
	all, err := r.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	var run []string
	for _, c := range all {
		if c.Runs {
			run = append(run, c.Consumer)
		}
	}
	return r.absentTopics(ctx, run)
}

// absentTopics is AbsentTopics for consumers that are known to run.
func (r *Reader) absentTopics(ctx context.Context, consumers []string) (list []AbsentTopic, err error) {
	list, err = pgsql.Collect(r.h.Patient.Query(ctx, r.h.DB(ctx), absentTopics, consumers), func(scan pgsql.Scan, a *AbsentTopic) error {
		return scan(&a.Consumer, &a.Topic, &a.Since)
	})
	return list, store.Wrap("look for topics that no process handles", err)
}

// Beat notes that a process runs consumers and handles their topics, and returns the topics that no process handles. of and topics are of
// equal length; topic "" stands for all topics. A process calls it once a minute.
func (r *Reader) Beat(ctx context.Context, consumers, of, topics []string) ([]AbsentTopic, error) {
	for _, s := range []struct {
		statement string
		args      []any
	}{{beActive, []any{consumers}}, {beTopics, []any{of, topics}}} {
		if _, err := r.h.SQL.Exec(ctx, r.h.DB(ctx), s.statement, s.args...); err != nil {
			return nil, store.Wrap("record that consumers run", err)
		}
	}
	return r.absentTopics(ctx, consumers)
}
