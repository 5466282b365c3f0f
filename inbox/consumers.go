package inbox

import (
	"context"
	"time"
)

// listConsumers are the consumers that have run, those that are forgotten apart.
const listConsumers = `
SELECT consumer, beat_at, beat_at >= clock_timestamp() - interval '3 minutes' FROM {schema}.inbox_consumer ORDER BY consumer`

// ConsumerState is what an operator sees of a consumer.
type ConsumerState struct {
	Consumer string
	// SeenAt is when a process last said that it runs it, by the clock of the database: once a minute does each. Runs says that this is at most three
	// minutes ago.
	SeenAt time.Time
	Runs   bool
}

// Consumers lists the consumers that have ever run on this database, by their names, without those that were given up by [Inbox.Forget]. A
// generation of a projection is a consumer of its own.
func (i *Inbox) Consumers(ctx context.Context) ([]ConsumerState, error) {
	rows, err := i.patient.Query(ctx, i.units.DB(ctx), listConsumers)
	if err != nil {
		return nil, wrapErr("list consumers", err)
	}
	defer rows.Close()
	var list []ConsumerState
	for rows.Next() {
		var c ConsumerState
		if err := rows.Scan(&c.Consumer, &c.SeenAt, &c.Runs); err != nil {
			return nil, wrapErr("list consumers", err)
		}
		list = append(list, c)
	}
	return list, wrapErr("list consumers", rows.Err())
}
