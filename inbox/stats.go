package inbox

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// Stats is what an operator looks at first, of one consumer. Each count goes up to Counted.
type Stats struct {
	Consumer string
	// Counted is how far the counts go: 10,000, or less where more than 5 consumers have something parked or dead, at least 1,000.
	Counted int
	// Waiting, Failed and Dead are the keys that do not flow, by their state. A message without order is a key of its own.
	Waiting, Failed, Dead int
	// Parked messages, and for how long the oldest of them has waited.
	Parked       int
	OldestParked time.Duration
	// DeadLetters are those that hold their key, which is Dead then, and the others.
	DeadLetters int
}

const (
	// troubled lists the consumers that have a key that does not flow, or a dead letter.
	troubled = `
WITH RECURSIVE stopped (consumer) AS (
	SELECT min(consumer) FROM {schema}.inbox_key
	UNION ALL SELECT (SELECT min(k.consumer) FROM {schema}.inbox_key k WHERE k.consumer > s.consumer) FROM stopped s WHERE s.consumer IS NOT NULL
), bereft (consumer) AS (
	SELECT min(consumer) FROM {schema}.inbox_dead
	UNION ALL SELECT (SELECT min(d.consumer) FROM {schema}.inbox_dead d WHERE d.consumer > b.consumer) FROM bereft b WHERE b.consumer IS NOT NULL
)
SELECT consumer FROM (SELECT consumer FROM stopped UNION SELECT consumer FROM bereft) c WHERE consumer IS NOT NULL ORDER BY consumer`

	// statistics reads a bounded number of rows: a count over a backlog of millions would be the load that it is meant to show. It is a
	// statement for each consumer. PostgreSQL would compile one for all of them (PostgreSQL, chapter 30, JIT), which took 0.24 s.
	statistics = `
SELECT k.waiting, k.failed, k.dead,
	(SELECT count(*) FROM (SELECT FROM {schema}.inbox_parked p WHERE p.consumer = $1::text LIMIT $2::int) x),
	coalesce(extract(epoch FROM clock_timestamp() - (SELECT min(p.parked_at) FROM {schema}.inbox_parked p WHERE p.consumer = $1::text)), 0)::float8,
	(SELECT count(*) FROM (SELECT FROM {schema}.inbox_dead d WHERE d.consumer = $1::text LIMIT $2::int) x)
FROM (
	SELECT count(*) FILTER (WHERE x.state = 'WAITING') AS waiting, count(*) FILTER (WHERE x.state = 'FAILED') AS failed,
		count(*) FILTER (WHERE x.state = 'DEAD') AS dead
	FROM (SELECT k.state FROM {schema}.inbox_key k WHERE k.consumer = $1::text LIMIT $2::int) x
) k`
)

// How many rows of each kind are counted: of one consumer, and about how many of all of them together. Metrics and pages ask again and again.
const (
	mostCounted  = 10_000
	leastCounted = 1000
	allCounted   = 50_000
)

// Stats reads the state of all consumers that have something parked or dead, by their names.
func (i *Inbox) Stats(ctx context.Context) ([]Stats, error) {
	consumers, err := i.troubled(ctx)
	if err != nil {
		return nil, wrapErr("read statistics", err)
	}
	list := make([]Stats, len(consumers))
	counted := min(mostCounted, max(allCounted/max(len(consumers), 1), leastCounted))
	for n, consumer := range consumers {
		st := &list[n]
		st.Consumer, st.Counted = consumer, counted
		var age float64
		err := i.adHoc().QueryRow(ctx, i.units.DB(ctx), statistics, []any{consumer, counted},
			&st.Waiting, &st.Failed, &st.Dead, &st.Parked, &age, &st.DeadLetters)
		if err != nil {
			return nil, wrapErr("read statistics", err)
		}
		st.OldestParked = seconds(age)
	}
	return list, nil
}

func (i *Inbox) troubled(ctx context.Context) ([]string, error) {
	rows := i.adHoc().Query(ctx, i.units.DB(ctx), troubled)
	return pgsql.Collect(rows, func(scan pgsql.Scan, consumer *string) error { return scan(consumer) })
}
