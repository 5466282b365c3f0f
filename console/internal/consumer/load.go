package consumer

import (
	"context"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/ops/behind"
	"github.com/oncebox/oncebox/outbox"
)

// Load is what a consumer that is behind at a topic has to do.
type Load struct {
	behind.Load

	Topic string
}

// loads reads the load of each topic at which a consumer is behind.
func (r *Row) loads(ctx context.Context, events *outbox.Store, box *inbox.Inbox) error {
	for _, t := range r.Troubles() {
		if t.Kind != state.TroubleBehind {
			continue
		}
		queue := behind.Queue{
			Consumer: r.Consumer.Consumer, Topic: t.Topic, Since: t.Since, Messages: t.Waiting.Messages, Precision: t.Waiting.Precision,
			Late: t.Waiting.Late(),
		}
		load, err := queue.Read(ctx, events, box)
		if err != nil {
			return err
		}
		r.Loads = append(r.Loads, Load{load, t.Topic})
	}
	return nil
}
