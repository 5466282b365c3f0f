package inbox

import (
	"context"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// AbsentTopic is a topic of which messages are parked and that no process handles.
type AbsentTopic struct {
	Consumer, Topic string
	// Since is when the message that waits longest was due, by the clock of the database.
	Since time.Time
}

const (
	// beTopics notes which topics of its consumers a process handles, once a minute.
	beTopics = `
INSERT INTO {schema}.inbox_topic AS t (consumer, topic) SELECT * FROM unnest($1::text[], $2::text[])
ON CONFLICT (consumer, topic) DO UPDATE SET beat_at = excluded.beat_at WHERE t.beat_at < excluded.beat_at - interval '1 minute'`

	// absentTopics asks the index for the key of each topic that has been due for longest: a topic that is handled has none that is late.
	absentTopics = topicsOfKeys + `
SELECT s.consumer, s.topic, first.due_at FROM seen s CROSS JOIN LATERAL (
	SELECT k.due_at FROM {schema}.inbox_key k WHERE k.consumer = s.consumer AND k.topic = s.topic AND k.state <> 'DEAD'
	ORDER BY k.due_at LIMIT 1) first
WHERE first.due_at < clock_timestamp() - interval '3 minutes' AND NOT EXISTS (
	SELECT FROM {schema}.inbox_topic t
	WHERE t.consumer = s.consumer AND t.topic IN (s.topic, '') AND t.beat_at >= clock_timestamp() - interval '3 minutes')
ORDER BY s.consumer, s.topic`
)

// AbsentTopics returns the topics of which messages have been parked for three minutes and that no process handles, though processes run their
// consumer. What [Inbox.Absent] returns is not among them.
func (i *Inbox) AbsentTopics(ctx context.Context) ([]AbsentTopic, error) {
	all, err := i.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	var run []string
	for _, c := range all {
		if c.Runs {
			run = append(run, c.Consumer)
		}
	}
	return i.absentTopics(ctx, run)
}

func (i *Inbox) absentTopics(ctx context.Context, consumers []string) (list []AbsentTopic, err error) {
	list, err = pgsql.Collect(i.patient.Query(ctx, i.units.DB(ctx), absentTopics, consumers), func(scan pgsql.Scan, a *AbsentTopic) error {
		return scan(&a.Consumer, &a.Topic, &a.Since)
	})
	return list, wrapErr("look for topics that no process handles", err)
}

// beat notes, once a minute, that this process runs its consumers and handles their topics, and looks for topics that no process handles.
func (r *runner) beat(ctx context.Context, consumers []string) error {
	now := time.Now()
	consumers = slices.DeleteFunc(slices.Clone(consumers), r.box.isUnowned)
	if len(consumers) == 0 || now.Sub(r.active) <= time.Minute && len(consumers) == r.noted {
		return nil
	}
	of, topics := r.box.handled()
	for _, s := range []struct {
		statement string
		args      []any
	}{{beActive, []any{consumers}}, {beTopics, []any{of, topics}}} {
		if _, err := r.box.sql.Exec(ctx, r.box.units.DB(ctx), s.statement, s.args...); err != nil {
			return wrapErr("note that consumers run", pgsql.Explain(err))
		}
	}
	r.active, r.noted = now, len(consumers)
	absent, err := r.box.absentTopics(ctx, consumers)
	for _, a := range absent {
		r.box.log.WarnContext(ctx, "oncebox: messages are parked whose topic no process handles: start one that has this consumer on it",
			"consumer", a.Consumer, "topic", a.Topic, "since", a.Since)
	}
	return err
}

// handled returns the consumers and topics whose parked messages can be handled here. Topic "" is of all topics.
func (i *Inbox) handled() (consumers, topics []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	keys := make([]handlerKey, 0, len(i.handlers))
	for key := range i.handlers {
		if !i.unowned(key.consumer) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, handlerKey.compare) // or two processes could wait for each other
	for _, key := range keys {
		consumers, topics = append(consumers, key.consumer), append(topics, key.topic)
	}
	return consumers, topics
}
