package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/skipped"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// BatchFunc handles several messages in one unit of work: a bulk writer. They are in the order in which they came, none of them was handled
// before, and there is at least one. They may be of different keys and tenants, so the context carries neither a message nor a tenant, and
// an event that is emitted under it is refused unless it names its tenant. To emit an event that belongs to one of the messages:
//
//	ctx := messaging.NewContext(ctx, m)
//	u := uow.MustFromContext(ctx)
//	err := u.Add("invoice", payload)
//
// After an error the unit is rolled back, and each message is handled alone, with a context that carries it.
type BatchFunc func(ctx context.Context, msgs []*messaging.Message) error

// enterAll is enter for several messages of one consumer. It returns the fresh ones, and the keys that do not flow. The other
// messages are duplicates.
const enterAll = `
SELECT entered, tenant, origin, stopped, xid FROM {schema}.inbox_enter_batch($1::uuid[], $2::text, $3::text[], $4::text[], $5::bigint[], $6::integer)`

// batch holds the messages of one unit of work and the outcome of each.
type batch struct {
	of     *consumer
	next   messaging.Handler
	bulk   *bulkWriter
	msgs   []*messaging.Message
	ids    []store.Identity
	became []store.Entry

	stopped []int64 // locks of the keys that do not flow
}

// maxKeys is how many keys one transaction locks. The locks of all transactions share a table of the server: when it is full, nobody
// gets a lock any more (PostgreSQL 20.12, max_locks_per_transaction). With the default of 64 for each of 100 connections, PostgreSQL 15 had
// room for 12,000 locks, its reserve included: for such a transaction on each connection.
const maxKeys = 100

// HandleBatch enters the messages with one statement, and handles the messages that were not entered before in the same unit. If the unit
// fails, each message is handled alone. Messages of more than maxKeys keys are several batches.
func (w *wrapped) HandleBatch(ctx context.Context, msgs []*messaging.Message) error {
	done := &outcomes{failed: map[int]error{}, stuck: map[string]bool{}}
	for from := 0; from < len(msgs); {
		to := from + w.portion(msgs[from:])
		p := part{msgs: msgs[from:to]}
		for n := from; n < to; n++ {
			p.places = append(p.places, n)
		}
		if err := w.handlePart(ctx, p, done); err != nil {
			return err
		}
		from = to
	}
	return done.err()
}

// portion returns how many of the messages make up the next batch.
func (w *wrapped) portion(msgs []*messaging.Message) int {
	if len(msgs) <= maxKeys {
		return len(msgs) // they have no more keys than that
	}
	keys := map[string]struct{}{}
	for n, m := range msgs {
		if key := store.KeyOf(m, w.of.unordered); key != "" {
			keys[key] = struct{}{}
		}
		if len(keys) > maxKeys {
			return n
		}
	}
	return len(msgs)
}

// batch returns the messages as one batch. ok is false if there is only one message, or if one of them has to be handled alone:
// it is invalid, or its try must be counted before it is made.
func (w *wrapped) batch(ctx context.Context, msgs []*messaging.Message) (b *batch, ok bool) {
	b = &batch{of: w.of, next: w.next, bulk: w.bulk, msgs: slices.Clone(msgs), ids: make([]store.Identity, len(msgs)), became: make([]store.Entry, len(msgs))}
	for n, m := range msgs {
		if m.ID == "" || w.of.mustCount(ctx, m) || store.Validate(m) != nil || messaging.Unreadable(m) != nil {
			return nil, false
		}
		b.msgs[n] = store.AsStored(m, w.of.unordered)
		b.ids[n] = w.of.ordered(store.Identify(w.of.name, b.msgs[n]))
	}
	return b, len(msgs) > 1
}

// try is one try of a batch: it enters the messages, stores the messages whose keys do not flow, and handles the fresh ones. It returns
// errMixed if the batch has both kinds.
func (b *batch) try(ctx context.Context, u *uow.Unit, limit *limit) error {
	if err := b.enter(ctx, u); err != nil {
		return err
	}
	var (
		todo []*messaging.Message
		at   []int // where they are in the batch
		wait []store.Parking
		flow []store.Identity
	)
	for n, m := range b.msgs {
		switch became := b.became[n]; {
		case became == store.Duplicate:
		case became == store.Early:
			if err := b.of.setAside(ctx, u.DB(), b.ids[n], m); err != nil {
				return err
			}
		case became == store.Behind:
			wait = append(wait, store.Parking{ID: b.ids[n], Message: m})
		case b.of.storesFirst:
			wait, flow = append(wait, store.Parking{ID: b.ids[n], Message: m}), append(flow, b.ids[n])
		default:
			todo, at = append(todo, m), append(at, n)
		}
	}
	if len(todo) > 0 && len(b.stopped) > 0 {
		return errMixed
	}
	if err := b.of.park(ctx, u, wait, flow...); err != nil {
		return err
	}
	if len(todo) == 0 {
		return nil
	}
	_, err := b.of.watched(ctx, todo[0].Topic, func(ctx context.Context) error {
		skips, err := b.handle(ctx, todo, limit)
		for n, skip := range skips {
			if skip {
				b.became[at[n]] = store.Passed
			}
		}
		return err
	})
	return err
}

// handle calls the handler for messages of one unit. skips reports for each message whether it was skipped.
func (b *batch) handle(ctx context.Context, todo []*messaging.Message, limit *limit) (skips []bool, err error) {
	if b.bulk != nil {
		return b.bulk.call(envelope.ForSeveral(context.WithValue(ctx, consumerKey{}, b.of.name)), todo)
	}
	skips = make([]bool, len(todo))
	for n, m := range todo {
		limit.reset(b.of.timeout)
		alone, mark := skipped.With(messaging.NewContext(ctx, m))
		if err := b.next.Handle(alone, m); err != nil {
			return nil, err
		}
		skips[n] = mark.IsSet()
	}
	return skips, nil
}

// enter enters the messages. A copy of a message that is in the batch already is a duplicate: it is settled with the first.
func (b *batch) enter(ctx context.Context, u *uow.Unit) error {
	clear(b.became) // of an earlier try
	b.stopped = nil
	if rebuilding, err := b.of.gate(ctx, u.DB()); err != nil {
		return err
	} else if rebuilding && !b.of.model.Replayed {
		for n := range b.became {
			b.became[n] = store.Early
		}
		return nil
	}
	entering := store.MakeEntering(b.ids)
	args := []any{entering.Keys, b.of.name, entering.Tenants, entering.Sources, entering.Locks, b.of.box.store.LockMillis()}
	place, err := b.of.box.store.SQL.In(ctx, u.DB())
	if err != nil {
		return fmt.Errorf("inbox: enter %d messages of consumer %s: %w", len(entering.Keys), b.of.name, err)
	}
	queued := &pgsql.Batch{}
	queued.Query(func(rows *pgsql.Result) error { return entering.Read(rows, b.became) }, place.Text(enterAll), args...)
	queued.Within = b.of.box.store.Patience()
	if err := unit.Of(ctx).Send(ctx, queued); err != nil {
		return fmt.Errorf("inbox: enter %d messages of consumer %s: %w", len(entering.Keys), b.of.name, store.Explain(err))
	}
	unit.Of(ctx).Identified(entering.Xid)
	b.stopped = entering.Stopped
	for n, became := range b.became {
		if became == store.Fresh && b.standsStill(n) {
			b.became[n] = store.Behind
		}
	}
	if n := slices.IndexFunc(b.became, func(became store.Entry) bool { return became == store.Fresh || became == store.Behind }); n >= 0 {
		unit.Of(ctx).ProvedBy(b.of.box.table.Entries.Proof(b.ids[n]))
	}
	return nil
}

// outcomes are the failures of a batch.
type outcomes struct {
	failed map[int]error   // by place of the message in the batch
	stuck  map[string]bool // keys with a message that failed
}

func (o *outcomes) err() error {
	if len(o.failed) == 0 {
		return nil
	}
	return &messaging.BatchError{Failed: o.failed}
}

// oneByOne handles each message as if it had come alone. Messages behind a failed one of the same key are not handled.
func (w *wrapped) oneByOne(ctx context.Context, p part, done *outcomes) {
	for n, m := range p.msgs {
		key := store.KeyOf(m, w.of.unordered)
		err := messaging.ErrBehind
		if key == "" || !done.stuck[key] {
			err = call(messaging.NewContext(ctx, m), w, m)
		}
		if err != nil {
			done.failed[p.places[n]] = err
			done.stuck[key] = true
		}
	}
}

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
// A unit that runs handlers holds no lock of a key that does not flow. head.run takes that lock after the handler of a parked message has
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
	limit := newLimit(cancel, w.of.timeout)
	err := w.of.box.store.Units.Do(timed, func(ctx context.Context, u *uow.Unit) error { return b.try(ctx, u, limit) }, store.ReadCommitted())
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
		w.of.box.store.Log.WarnContext(ctx, "oncebox: a batch failed, its messages are handled one by one", "consumer", w.of.name,
			"topic", p.msgs[0].Topic, "messages", len(p.msgs), "error", err)
		if err := w.of.box.table.Entries.Revoke(ctx, w.of.name, err, b.ids...); err != nil {
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
		w.of.box.countN(ctx, w.of.name, w.of.outcome(became), n)
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
