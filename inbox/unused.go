package inbox

import (
	"context"

	"github.com/oncebox/oncebox/internal/skipped"
	"github.com/oncebox/oncebox/internal/unit"
)

// watched runs a handler within the unit that ctx carries. A handler that has succeeded and never asked for its unit is told of in the log,
// once for each consumer and topic: it may have used a pool of its own, whose changes are made again when the message is tried again.
//
// It returns whether the message was skipped: settled by its handler, or by what is around it, without being handled.
func (w *wrapped) watched(ctx context.Context, topic string, handle func(ctx context.Context) error) (skip bool, err error) {
	ctx, mark := skipped.With(ctx)
	err = handle(ctx)
	skip = err == nil && mark.IsSet()
	if err == nil && !skip && !w.withoutUnit && !unit.Of(ctx).Used() && w.box.first(logged{consumer: w.consumer, topic: topic}) {
		w.box.store.Log.WarnContext(ctx, "oncebox: a handler has not used its unit of work. What it does through a pool of its own is committed by "+
			"itself, and "+
			"done again when the message is handled again: use uow.FromContext(ctx), inbox.Leased for calls to other systems, or inbox.WithoutUnit if it "+
			"has nothing to do there", "consumer", w.consumer, "topic", topic)
	}
	return skip, err
}
