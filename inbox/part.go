package inbox

import (
	"context"
	"errors"
	"slices"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/skipped"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// part holds some messages of a batch, in their order, with their indexes in the batch.
type part struct {
	msgs   []*messaging.Message
	places []int
}

// errMixed rolls back a unit that has both messages to handle and messages whose keys do not flow.
var errMixed = errors.New("inbox: some keys of the batch do not flow")

// handlePart handles some messages of a batch in one unit. After an error the caller treats the whole batch as not handled. Parts that have
// committed stay committed: their messages are duplicates when they come again.
//
// A unit that runs handlers holds no lock of a key that does not flow. runHead takes that lock after the handler of a parked message has
// ended. It would wait for the handlers of the batch with its own work done, and deadlock if both write the same row of the service. So the
// messages of such keys are a part of their own, which only stores them. If a key begins or ceases to flow meanwhile, the part is split
// again; the parts get smaller each time, so this ends.
func (w *wrapped) handlePart(ctx context.Context, p part, done *outcomes) error {
	b, ok := w.batch(ctx, p.msgs)
	if !ok || len(done.failed) > 0 { // messages of this part may be behind a failed message
		w.oneByOne(ctx, p, done)
		return nil
	}
	timed, cancel := context.WithCancelCause(ctx)
	limit := newLimit(cancel, w.timeout)
	err := w.box.store.Units.Do(timed, func(ctx context.Context, u *uow.Unit) error { return w.tryAll(ctx, u, b, limit) }, store.ReadCommitted())
	err = explainLate(timed, err)
	limit.stop()
	cancel(nil)
	switch {
	case errors.Is(err, errMixed):
		still, flowing := b.split(p)
		if err := w.handlePart(ctx, still, done); err != nil {
			return err
		}
		return w.handlePart(ctx, flowing, done)
	case err == nil:
	case ctx.Err() != nil || errors.Is(err, store.ErrGeneration):
		return err
	default:
		w.box.store.Log.WarnContext(ctx, "oncebox: a batch failed, its messages are handled one by one", "consumer", w.consumer,
			"topic", p.msgs[0].Topic, "messages", len(p.msgs), "error", err)
		if err := w.box.table.Entries.Revoke(ctx, w.consumer, err, b.ids...); err != nil {
			return err
		}
		w.oneByOne(ctx, p, done)
		return nil
	}
	counts := map[store.Entry]int64{}
	for _, became := range b.became {
		counts[became]++
	}
	for became, n := range counts {
		w.box.countN(ctx, w.consumer, w.outcome(became), n)
	}
	skipped.Add(ctx, counts[store.Passed]) // for the metrics of the consumer
	return nil
}

// split separates the messages whose keys stand still from the others.
func (b *batch) split(p part) (still, flowing part) {
	for n, m := range p.msgs {
		to := &flowing
		if b.standsStill(n) {
			to = &still
		}
		to.msgs, to.places = append(to.msgs, m), append(to.places, p.places[n])
	}
	return still, flowing
}

// standsStill reports whether the key of message n did not flow when the batch was entered.
func (b *batch) standsStill(n int) bool {
	lock, ordered := b.ids[n].Lock.(int64)
	return ordered && slices.Contains(b.stopped, lock)
}
