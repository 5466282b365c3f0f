package inbox

import (
	"context"

	"github.com/oncebox/oncebox/internal/skipped"
	"github.com/oncebox/oncebox/internal/unit"
)

// watched runs a handler within the unit that ctx carries. If a handler succeeds and never asks for its unit, a warning is logged, once for
// each consumer and topic: the handler may have used a pool of its own, and those changes are made twice when a message is tried twice.
//
// It returns whether the message was skipped: the handler or its middleware has settled it without handling it, see messaging.Skip.
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
