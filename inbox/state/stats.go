package state

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Stats are the numbers about one consumer that an operator looks at first. Each count goes up to Counted.
type Stats struct {
	Consumer string
	// Counted is the bound of the counts: 10,000, or less, at least 1,000, if more than 5 consumers have parked messages or dead letters.
	Counted int
	// Waiting, Failed and Dead count the keys that do not flow, by their state. A message without order is a key of its own.
	Waiting, Failed, Dead int
	// Parked is the number of parked messages, OldestParked how long the oldest of them has waited.
	Parked       int
	OldestParked time.Duration
	// DeadLetters counts all dead letters, whether they hold their key (which is counted as Dead then) or not.
	DeadLetters int
}

// How many rows of each kind are counted: for one consumer, and about how many for all consumers together. The bounds matter because
// metrics and pages ask again and again.
const (
	mostCounted  = 10_000
	leastCounted = 1000
	allCounted   = 50_000
)

// Stats reads the numbers of all consumers with parked messages or dead letters, by their names.
func (r *Reader) Stats(ctx context.Context) ([]Stats, error) {
	consumers, err := r.troubled(ctx)
	if err != nil {
		return nil, store.Wrap("read statistics", err)
	}
	list := make([]Stats, len(consumers))
	counted := min(mostCounted, max(allCounted/max(len(consumers), 1), leastCounted))
	for n, consumer := range consumers {
		if list[n], err = r.statsOf(ctx, consumer, counted); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// StatsOf reads the numbers of one consumer. They are 0 if it has no parked messages and no dead letters.
func (r *Reader) StatsOf(ctx context.Context, consumer string) (Stats, error) {
	return r.statsOf(ctx, consumer, mostCounted)
}

func (r *Reader) statsOf(ctx context.Context, consumer string, counted int) (Stats, error) {
	st := Stats{Consumer: consumer, Counted: counted}
	var age float64
	err := r.h.AdHoc().QueryRow(ctx, r.h.DB(ctx), store.Statistics, []any{consumer, counted},
		&st.Waiting, &st.Failed, &st.Dead, &st.Parked, &age, &st.DeadLetters)
	st.OldestParked = seconds(age)
	return st, store.Wrap("read statistics", err)
}

func (r *Reader) troubled(ctx context.Context) ([]string, error) {
	rows := r.h.AdHoc().Query(ctx, r.h.DB(ctx), store.Troubled)
	return pgsql.Collect(rows, func(scan pgsql.Scan, consumer *string) error { return scan(consumer) })
}

// Menu has the numbers of a menu for operators. Each counts up to 1,001, which means that there are more than 1,000.
type Menu struct {
	// Dead is the number of dead letters, and Failing of keys whose first message fails and is tried again. Failing is counted among the first 10,000
	// keys that wait.
	Dead, Failing int
	// Paused is the number of paused consumers.
	Paused int
}

// Menu reads the numbers of a menu. It is one statement, and much cheaper than [Reader.Stats].
func (r *Reader) Menu(ctx context.Context) (m Menu, err error) {
	err = r.h.AdHoc().QueryRow(ctx, r.h.DB(ctx), store.Menu, nil, &m.Dead, &m.Failing, &m.Paused)
	return m, store.Wrap("read the numbers of a menu", err)
}
