package lanedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// hookTries is the number of tries to give rows up together with their hooks. After them the rows are given up
	// without hooks.
	hookTries = 3
	// plainTime is the limit of the write without hooks, however little time the caller has left, because this write
	// must come to an end.
	plainTime = 5 * time.Second
)

// dying holds the rows that are about to become dead letters, with the reasons.
type dying struct {
	statement string // reads the rows
	ids       []outboxdb.RowID
	causes    map[outboxdb.RowID]cause
}

// cause says why a row dies, and whether its key waits for an operator then.
type cause struct {
	text  string
	holds bool
}

const (
	readFresh  = readDying + `{schema}.outbox` + ofDying
	readHeld   = readDying + `{schema}.outbox_held` + ofDying
	readDying  = `SELECT ` + outboxdb.RowColumns + `, now() FROM unnest($1::smallint[], $2::bigint[]) a(l, s) JOIN `
	ofDying    = ` o ON o.lane = a.l AND o.seq = a.s ORDER BY o.lane, o.seq`
	beforeHook = `SAVEPOINT oncebox_on_dead`
	afterHook  = `RELEASE SAVEPOINT oncebox_on_dead`
	undoHook   = `ROLLBACK TO SAVEPOINT oncebox_on_dead; RELEASE SAVEPOINT oncebox_on_dead`
)

func dyingFresh(lane int16, outcomes []Outcome) dying {
	d := dying{statement: readFresh, causes: map[outboxdb.RowID]cause{}}
	for _, o := range outcomes {
		if o.Verdict == Dead || o.Verdict == Abandoned {
			d.add(outboxdb.RowID{Lane: lane, Seq: o.Seq}, o.Verdict, o.Error)
		}
	}
	return d
}

func dyingHeld(outcomes []HeldOutcome) dying {
	d := dying{statement: readHeld, causes: map[outboxdb.RowID]cause{}}
	for _, o := range outcomes {
		d.add(o.RowID, o.Verdict, o.Error)
	}
	return d
}

func (d *dying) add(id outboxdb.RowID, v Verdict, reason string) {
	d.ids, d.causes[id] = append(d.ids, id), cause{pgsql.CleanText(reason), v == Dead}
}

// made says how many dead letters a write has made, and which ones. ids is nil if the write does not report them.
type made struct {
	n   int
	ids map[outboxdb.RowID]bool
}

func madeOf(gone []GivenUp) made {
	m := made{n: len(gone), ids: map[outboxdb.RowID]bool{}}
	for _, g := range gone {
		m.ids[g.RowID] = true
	}
	return m
}

// agrees reports whether the write has made exactly the dead letters that were announced.
func (m made) agrees(letters []outboxdb.DeadLetter) bool {
	if m.n != len(letters) {
		return false
	}
	for i := range letters {
		if m.ids != nil && !m.ids[rowID(&letters[i])] {
			return false
		}
	}
	return true
}

func rowID(d *outboxdb.DeadLetter) outboxdb.RowID {
	return outboxdb.RowID{Lane: d.Lane, Seq: d.Sequence}
}

// writeDead makes dead letters, in a transaction or by itself.
type writeDead func(ctx context.Context, tx bun.IDB) (made, error)

// announced runs write together with [Config.OnDead] for the rows that die.
//
// The hooks come first and the write comes last in the transaction, because the write locks the lanes: a slow hook
// must not keep the leases from being renewed. So the hooks are called for rows that were there a moment ago. If the
// write makes dead letters of other rows than these, everything is rolled back and tried again. If the lane was lost,
// the write fails, and nothing of the hooks remains.
//
// A hook that fails is undone by itself, with a savepoint. If the whole transaction fails, because a hook has broken
// the connection, has run into the limit or violates a deferred constraint, it is tried again without that hook. In
// the end write runs alone: rows that must die are not kept by hooks.
func announced(ctx context.Context, box *outboxdb.Handle, d dying, write writeDead) error {
	if box.OnDead == nil || len(d.ids) == 0 {
		_, err := write(ctx, box.DB)
		return err
	}
	a := &announcement{box: box, dying: d, failed: map[outboxdb.RowID]error{}}
	err := a.together(ctx, write)
	if err == nil || !a.called || errors.Is(err, ErrFenced) {
		return err
	}
	return a.alone(ctx, write, err)
}

// announcement is one write with its hooks.
type announcement struct {
	box *outboxdb.Handle
	dying

	letters []outboxdb.DeadLetter
	failed  map[outboxdb.RowID]error // hooks that are not called again
	only    map[outboxdb.RowID]bool  // the rows that a try would have made dead letters; nil: not known
	called  bool
	unknown bool // the answer to a COMMIT was lost
}

var errOthersDied = errors.New("outbox: the rows to be made dead letters have changed since Config.OnDead was called")

// together tries to write with hooks. The lanes are not locked meanwhile, but their worker waits.
func (a *announcement) together(ctx context.Context, write writeDead) (err error) {
	ctx, cancel := context.WithTimeout(ctx, a.box.OnDeadTimeout)
	defer cancel()
	for range hookTries {
		err = a.try(ctx, write)
		if err == nil || errors.Is(err, ErrFenced) || !a.called || ctx.Err() != nil {
			break
		}
	}
	if err == nil {
		a.log(ctx, nil)
		a.box.Wake(outboxdb.AllLanes)
	}
	return err
}

// alone writes without hooks.
func (a *announcement) alone(ctx context.Context, write writeDead, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), plainTime)
	defer cancel()
	m, err := write(ctx, a.box.DB)
	if err != nil {
		return err
	}
	if a.unknown && m.n < len(a.ids) {
		// The COMMIT without an answer may have made them. The caller has to look.
		return outboxdb.Wrap("give up rows", cause)
	}
	a.log(ctx, cause)
	return nil
}

func (a *announcement) try(ctx context.Context, write writeDead) error {
	tx, err := a.box.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return outboxdb.Wrap("give up rows: begin", err)
	}
	defer func() { _ = tx.Rollback() }() // after COMMIT it does nothing
	if err := a.read(ctx, tx); err != nil {
		return err
	}
	for i := range a.letters {
		if err := a.call(ctx, tx, &a.letters[i]); err != nil {
			return err
		}
	}
	m, err := write(ctx, tx)
	if err != nil {
		return err
	}
	if !m.agrees(a.letters) {
		a.only = m.ids
		return errOthersDied
	}
	err = tx.Commit()
	a.unknown = a.unknown || err != nil && pgerr.Code(err) == ""
	return outboxdb.Wrap("give up rows: commit", err)
}

// read reads the letters. DiedAt is the time of the transaction, as in the table.
func (a *announcement) read(ctx context.Context, tx bun.Tx) error {
	lanes, seqs := splitIDs(a.ids)
	var letters []outboxdb.DeadLetter
	err := pgsql.Each(a.box.Run.Query(ctx, tx, a.statement, lanes, seqs), func(scan pgsql.Scan) error {
		var d outboxdb.DeadLetter
		if err := outboxdb.ScanRow(scan, &d.Row, &d.DiedAt); err != nil {
			return err
		}
		if a.only == nil || a.only[rowID(&d)] {
			d.RetryCount++ // as it will be in the table
			why := a.causes[rowID(&d)]
			d.Error, d.Fingerprint, d.Holds = why.text, d.Row.Fingerprint(why.text), why.holds && d.Key != ""
			letters = append(letters, d)
		}
		return nil
	})
	if err != nil {
		return outboxdb.Wrap("read the rows that are given up", err)
	}
	a.letters = letters
	return nil
}

// call calls the hook behind a savepoint. It returns an error only if the transaction itself has failed and cannot go
// on.
func (a *announcement) call(ctx context.Context, tx bun.Tx, d *outboxdb.DeadLetter) error {
	id := rowID(d)
	if _, failed := a.failed[id]; failed || d.Metadata[event.DeadLetterOf] != "" {
		return nil
	}
	if _, err := tx.ExecContext(ctx, beforeHook); err != nil {
		return outboxdb.Wrap("call OnDead", err)
	}
	a.called = true
	err := a.hook(ctx, tx, *d)
	if err == nil {
		if _, err = tx.ExecContext(ctx, afterHook); err == nil {
			return nil
		}
	}
	a.failed[id] = err
	_, err = tx.ExecContext(ctx, undoHook)
	return outboxdb.Wrap("undo OnDead", err)
}

func (a *announcement) hook(ctx context.Context, tx bun.Tx, d outboxdb.DeadLetter) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("outbox: Config.OnDead panicked: %v\n%s", v, debug.Stack())
		}
	}()
	md := event.Metadata{event.CausationID: d.ID, event.CorrelationID: d.ID, event.DeadLetterOf: d.ID}
	if id := d.Metadata[event.CorrelationID]; id != "" {
		md[event.CorrelationID] = id
	}
	return a.box.OnDead(event.WithMetadata(event.WithTenant(ctx, d.TenantID), md), tx, d)
}

// log reports dead letters that were not announced: the letters whose hook failed, or all of them because of cause.
func (a *announcement) log(ctx context.Context, cause error) {
	for i := range a.letters {
		d := &a.letters[i]
		err := a.failed[rowID(d)]
		if err == nil {
			err = cause
		}
		if err == nil || d.Metadata[event.DeadLetterOf] != "" {
			continue
		}
		a.box.Unannounced.Add(ctx, 1)
		a.box.Log.ErrorContext(ctx, "oncebox: Config.OnDead failed for an event that is a dead letter now", "id", d.ID, "type", d.Type, "topic", d.Topic,
			"tenant", d.TenantID, "aggregate_type", d.AggregateType, "aggregate_id", d.AggregateID, "ordering_key", d.Key,
			"lane", d.Lane, "sequence", d.Sequence, "error", err)
	}
}
