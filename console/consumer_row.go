package console

import (
	"context"
	"maps"
	"slices"

	"github.com/oncebox/oncebox/inbox"
)

// consumerRow is a consumer, and what waits in the database for it.
type consumerRow struct {
	inbox.Stats

	// Runs says that a process runs it.
	Runs bool
}

// readConsumers joins the consumers that run, or did, with what waits for them.
func (c *Console) readConsumers(ctx context.Context) (list []consumerRow, err error) {
	known, err := c.cfg.Inbox.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := c.cfg.Inbox.Stats(ctx)
	if err != nil {
		return nil, err
	}
	rows := map[string]consumerRow{}
	for _, k := range known {
		rows[k.Consumer] = consumerRow{Stats: inbox.Stats{Consumer: k.Consumer}, Runs: k.Runs}
	}
	for _, st := range stats {
		rows[st.Consumer] = consumerRow{Stats: st, Runs: rows[st.Consumer].Runs}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		list = append(list, rows[name])
	}
	return list, nil
}
