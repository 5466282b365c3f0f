package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pace"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/span"
	"github.com/oncebox/oncebox/operator"
)

const (
	askNow = `SELECT clock_timestamp()`
	askAge = `SELECT clock_timestamp() - $1::interval`
)

// retentionActor is the actor of audit entries about letters that a retention has removed.
const retentionActor = "retention"

// decision is an action on letters.
type decision struct {
	action  operator.Action
	by      operator.By
	payload []byte // the new payload; nil: the stored one stays
	one     bool   // only one letter is meant: if several match, nothing is changed
}

func (b *Box[L]) statement(a operator.Action) string {
	switch a {
	case operator.Expire:
		return b.SQL.Expire
	case operator.Discard:
		return b.SQL.Discard
	default:
		return b.SQL.Replay
	}
}

// Replay makes one letter a waiting event or message again.
func (b *Box[L]) Replay(ctx context.Context, one One, by operator.By) error {
	return b.actOnOne(ctx, decision{action: operator.Replay, by: by}, one)
}

// ReplayEdited is Replay with a new payload.
func (b *Box[L]) ReplayEdited(ctx context.Context, one One, payload []byte, by operator.By) error {
	if err := b.checkPayload(payload); err != nil {
		return b.wrap(string(operator.Edit)+" "+one.Name, err)
	}
	return b.actOnOne(ctx, decision{action: operator.Edit, by: by, payload: payload}, one)
}

// Discard deletes one letter.
func (b *Box[L]) Discard(ctx context.Context, one One, by operator.By) error {
	return b.actOnOne(ctx, decision{action: operator.Discard, by: by}, one)
}

// ReplayAll replays the letters that the filter selects and that are dead when the call begins. It returns how many it
// has replayed, also beside an error.
func (b *Box[L]) ReplayAll(ctx context.Context, filter operator.DeadFilter, by operator.By, bulk *operator.Bulk) (int64, error) {
	return b.actOnAll(ctx, decision{action: operator.Replay, by: by}, filter, bulk)
}

// DiscardAll deletes the letters that ReplayAll would replay.
func (b *Box[L]) DiscardAll(ctx context.Context, filter operator.DeadFilter, by operator.By, bulk *operator.Bulk) (int64, error) {
	return b.actOnAll(ctx, decision{action: operator.Discard, by: by}, filter, bulk)
}

// Expire discards letters older than retention; with 0 and less it does nothing. It also frees their keys: otherwise
// later messages would wait for ever for a letter that no longer exists.
func (b *Box[L]) Expire(ctx context.Context, retention time.Duration) error {
	if retention <= 0 {
		return nil
	}
	var before time.Time
	if err := b.Run.QueryRow(ctx, b.DB(ctx), askAge, []any{retention}, &before); err != nil {
		return b.wrap("read the time of the database", err)
	}
	by := operator.By{Actor: retentionActor, Reason: "dead for more than " + span.Text(retention)}
	n, err := b.sweep(ctx, decision{action: operator.Expire, by: by}, operator.DeadFilter{DiedBefore: before}, pace.New(0, b.BatchSize), nil)
	if n > 0 {
		b.Log.WarnContext(ctx, "oncebox: dead letters were deleted by their retention", "box", b.Name, "count", n, "died_before", before)
	}
	return err
}

func (b *Box[L]) actOnOne(ctx context.Context, d decision, one One) error {
	what := string(d.action) + " " + one.Name
	if err := errors.Join(d.by.Validate(d.action), one.Invalid); err != nil {
		return b.wrap(what, err)
	}
	d.one = true
	batch, moved, err := b.act(ctx, d, one.Where, 2)
	if err == nil && (batch.Len() == 0 || moved == 0) {
		err = operator.ErrNotDead
	}
	return b.wrap(what, err)
}

func (b *Box[L]) actOnAll(ctx context.Context, d decision, filter operator.DeadFilter, bulk *operator.Bulk) (moved int64, err error) {
	if bulk == nil {
		bulk = &operator.Bulk{}
	}
	if err := errors.Join(d.by.Validate(d.action), filter.Validate()); err != nil {
		return 0, b.wrap(string(d.action)+" dead letters", err)
	}
	if bulk.DryRun {
		return b.Count(ctx, filter)
	}
	// Letters that die after this moment, perhaps because they were just replayed, are left for another call. Otherwise
	// this call might never end.
	var now time.Time
	if err := b.Run.QueryRow(ctx, b.DB(ctx), askNow, nil, &now); err != nil {
		return 0, b.wrap("read the time of the database", err)
	}
	if filter.DiedBefore.IsZero() || filter.DiedBefore.After(now) {
		filter.DiedBefore = now
	}
	return b.sweep(ctx, d, filter, pace.New(bulk.Rate, cmp.Or(max(bulk.BatchSize, 0), b.BatchSize)), bulk.Progress)
}

// sweep applies the decision to all letters that the filter selects, batch by batch.
func (b *Box[L]) sweep(
	ctx context.Context, d decision, filter operator.DeadFilter, p *pace.Pace, progress func(int64),
) (moved int64, err error) {
	w := b.SQL.Where(filter)
	for {
		batch, n, err := b.act(ctx, d, w, p.Batch())
		moved += n
		if err == nil && batch.Len() == 0 {
			return moved, nil
		}
		if err == nil && progress != nil {
			progress(moved)
		}
		if err == nil {
			err = p.Wait(ctx, n)
		}
		if err != nil {
			return moved, b.wrap(fmt.Sprintf("%s dead letters, after %d", d.action, moved), err)
		}
		w = b.SQL.Where(filter)
		w.Add(b.SQL.Beyond, batch.Place()...)
	}
}

// act applies the decision to the first n letters that match, in one transaction. moved may be less than the size of
// the batch, because another process may have changed some letters before they were locked.
func (b *Box[L]) act(ctx context.Context, d decision, w *pgsql.Where, n int) (batch Batch, moved int64, err error) {
	statement, args := b.Pick(w, n)
	err = b.Within(ctx, func(ctx context.Context, tx bun.IDB) (bool, error) {
		batch, moved = b.NewBatch(), 0 // the function may be run again, with a new transaction
		err := pgsql.Each(b.Run.Query(ctx, tx, statement, args...), batch.Add)
		if err != nil || batch.Len() == 0 {
			return false, err
		}
		if d.one && batch.Len() > 1 {
			return false, operator.ErrSeveralDead
		}
		moved, err = b.move(ctx, tx, d, batch)
		return true, err
	})
	if err != nil {
		return nil, 0, err
	}
	return batch, moved, nil
}

// Pick returns the statement that chooses a batch of at most n letters, and its arguments.
func (b *Box[L]) Pick(w *pgsql.Where, n int) (statement string, args []any) {
	bound := w.Arg(n)
	return fmt.Sprintf(b.SQL.Pick, w, bound), w.Args
}

func (b *Box[L]) move(ctx context.Context, tx bun.IDB, d decision, batch Batch) (moved int64, err error) {
	if _, err := b.Run.Exec(ctx, tx, b.SQL.Lock, batch.Locks()...); err != nil {
		return 0, err
	}
	if d.payload != nil {
		if _, err := b.Run.Exec(ctx, tx, b.SQL.Edit, append(batch.Refs(), d.payload)...); err != nil {
			return 0, err
		}
	}
	args := append([]any{d.by.Actor, string(d.action), pgsql.CleanText(d.by.Reason)}, batch.Refs()...)
	if err := b.Run.QueryRow(ctx, tx, b.statement(d.action), args, &moved); err != nil {
		return 0, err
	}
	_, err = b.Run.Exec(ctx, tx, b.SQL.Settle, batch.Keys()...)
	return moved, err
}

// checkPayload returns an error if an edited payload cannot be stored.
func (b *Box[L]) checkPayload(payload []byte) error {
	switch {
	case len(payload) == 0:
		return errors.New("the payload is empty")
	case b.MaxPayload >= 0 && len(payload) > b.MaxPayload:
		return fmt.Errorf("the payload has %d bytes, and Config.MaxPayload is %d", len(payload), b.MaxPayload)
	default:
		return nil
	}
}
