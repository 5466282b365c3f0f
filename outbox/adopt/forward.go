package adopt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/outbox"
)

// forwardTries is how often Forward asks for the lock of the table. While it waits, all writers of the table wait behind it, so it waits briefly.
const forwardTries = 10

const (
	boundForward = `SET LOCAL lock_timeout = '1s'`

	hasTrigger = `SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = $1::regclass AND tgname = $2 AND tgenabled <> 'D')`
)

// Forward moves the rest of the table and, in the same transaction, makes a trigger that forwards each new row when the transaction of its writer commits.
// From then on events of old code, which writes the table, and of new code, which writes the outbox, are published in the order of their commits. The
// table stays empty, and old code may run as long as it likes.
//
// The trigger does what a [Mover] does: it adds the event in the writer's transaction and marks or deletes the row. Like each writer of an outbox it locks
// the ordering key, from the COMMIT on.
//
// A row that no event can be made of becomes a dead letter in its turn. Later events of its key, of old and of new code, wait until an operator replays it
// with another payload, or discards it. On the topics of projector.Config.ContinueAfterDead they go on.
//
// It is refused while rows are left that cannot be moved. The role needs the right to make functions and views in the schema of oncebox, to call
// oncebox_add, and to make triggers at the table; the trigger acts with its rights. The table needs a primary key. Calling it again replaces
// the function, for a mapping that has changed.
//
// While rows are forwarded, PostgreSQL refuses to drop the table, or a column that the mapping names.
func (m *Mover) Forward(ctx context.Context) error {
	if len(m.plan.table.key) == 0 {
		return fmt.Errorf("adopt: forward %s: the table has no primary key, by which the trigger finds its row: make one", m.plan.table.label())
	}
	for try := 1; ; try++ {
		left, err := m.Once(ctx) // most of it, while others write
		if err == nil && left.Left > 0 && len(left.Problems) > 0 {
			return fmt.Errorf("adopt: forward %s: %d rows are left that cannot be moved, such as row %q: %s. Correct or delete them first, "+
				"because later rows of their keys would pass them", m.plan.table.label(), left.Left, left.Problems[0].Row, left.Problems[0].Reason)
		}
		if err == nil {
			err = m.inForward(ctx, m.beginForward)
		}
		if try == forwardTries && pgerr.Code(err) == pgerr.LockNotAvailable {
			err = fmt.Errorf("a transaction that has written to the table stays open: end it, or wait for its end, and forward again; the oldest are shown by "+
				"SELECT pid, xact_start, query FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY xact_start: %w", err)
		}
		if err == nil || try == forwardTries || !isPassing(err) {
			return wrap("forward "+m.plan.table.label(), err)
		}
		m.store.Telemetry().Logger.WarnContext(ctx, "oncebox: forwarding waits for transactions that have written to the table",
			"table", m.plan.table.label(), "error", err)
		if err := backoff.Wait(ctx, m.cfg.Interval); err != nil {
			return err
		}
	}
}

// StopForwarding removes the trigger of [Mover.Forward], and ends the report of the table in [States] until a mover runs again. Rows that are written
// afterwards stay in the table until they are moved.
func (m *Mover) StopForwarding(ctx context.Context) error {
	label := m.plan.table.label()
	err := m.inForward(ctx, func(ctx context.Context, tx bun.Tx) error {
		return stopForwarding(ctx, tx, m.plan.box, label, m.plan.table.sql())
	})
	m.noted = time.Time{}
	return wrap("stop forwarding "+label, err)
}

// Forget ends the report of a table in [States] that does not exist any more, and removes what [Mover.Forward] has left. mapping names the table with its
// schema. If the table exists, it is for [Mover.StopForwarding].
func Forget(ctx context.Context, store *outbox.Store, mapping *Mapping) error {
	db := store.Handle().DB
	box, err := boxOf(ctx, store)
	if err != nil {
		return err
	}
	schema, name, err := splitTable(mapping.Table)
	if err != nil {
		return fmt.Errorf("adopt: mapping: table: %w", err)
	}
	return wrap("forget "+mapping.Table, db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		var label string
		err := tx.Tx.QueryRowContext(ctx, fmt.Sprintf(findGone, box), pgx.QueryExecModeExec, schema, name).Scan(&label)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		return stopForwarding(ctx, tx, box, label, "")
	}))
}

// findGone finds a table that was adopted and does not exist any more.
const findGone = `
SELECT a.old_table FROM %s.outbox_adopted a
WHERE CASE WHEN $1 = '' THEN right(a.old_table, length($2) + 1) = '.' || $2 ELSE a.old_table = $1 || '.' || $2 END
	AND NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname || '.' || c.relname = a.old_table AND c.relkind IN ('r', 'p'))
LIMIT 1`

// stopForwarding removes the trigger, if there is a table, and all else that Forward made.
func stopForwarding(ctx context.Context, tx bun.Tx, box, label, table string) error {
	if table != "" {
		if err := removeTrigger(ctx, tx, table); err != nil {
			return err
		}
	}
	if _, err := tx.Tx.ExecContext(ctx, dropForward(forwardName(box, label))); err != nil {
		return err
	}
	_, err := tx.Tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s.outbox_adopted WHERE old_table = $1", box), pgx.QueryExecModeExec, label)
	return err
}

// functionOfTrigger names the function of a trigger. It has the name that the table had when the trigger was made.
const functionOfTrigger = `
SELECT quote_ident(n.nspname) || '.' || quote_ident(p.proname) FROM pg_trigger t
JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace WHERE t.tgrelid = $1::regclass AND t.tgname = $2`

// removeTrigger removes the trigger of a table, if it has one, with its function and its view.
func removeTrigger(ctx context.Context, tx bun.Tx, table string) error {
	var name string
	err := tx.Tx.QueryRowContext(ctx, functionOfTrigger, pgx.QueryExecModeExec, table, forwardTrigger).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err == nil {
		_, err = tx.Tx.ExecContext(ctx, "DROP TRIGGER "+forwardTrigger+" ON "+table+"; "+dropForward(name))
	}
	return err
}

// IsForwarding reports whether the table has the trigger, and nobody has disabled it.
func (m *Mover) IsForwarding(ctx context.Context) (is bool, err error) {
	err = m.store.Handle().DB.DB.QueryRowContext(ctx, hasTrigger, pgx.QueryExecModeExec, m.plan.table.sql(), forwardTrigger).Scan(&is)
	return is, wrap("look for the trigger of "+m.plan.table.label(), err)
}

func (m *Mover) inForward(ctx context.Context, fn func(context.Context, bun.Tx) error) error {
	return m.store.Handle().DB.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.Tx.ExecContext(ctx, boundForward); err != nil {
			return err
		}
		if _, err := tx.Tx.ExecContext(ctx, takeTurn, pgx.QueryExecModeExec, m.plan.table.label()); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// errNotDrained means that more rows came than can be moved while writers wait.
var errNotDrained = errors.New("rows come faster than they are moved: let oncebox adopt run first, until it has caught up")

// beginForward locks writers out, moves what they have committed, and makes the trigger. Writers whose transactions have written to the table hold a lock
// until they end, so none of their rows is missed.
func (m *Mover) beginForward(ctx context.Context, tx bun.Tx) error {
	if _, err := tx.Tx.ExecContext(ctx, "LOCK TABLE "+m.plan.table.sql()+" IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return err
	}
	const most = 2000 // moved in about a tenth of a second
	h, err := m.move(ctx, tx, most)
	switch {
	case err != nil:
		return err
	case len(h.problems) > 0:
		return fmt.Errorf("row %q cannot be moved: %s", h.problems[0].Row, h.problems[0].Reason)
	case h.read == most:
		return errNotDrained
	}
	// A name that the trigger does not find would fail each writer.
	if _, err := tx.Tx.ExecContext(ctx, "SET LOCAL search_path = pg_catalog, pg_temp; EXPLAIN "+m.plan.count()); err != nil {
		return fmt.Errorf("the trigger runs with the search_path pg_catalog, so where has to name tables and functions with their schemas: %w", err)
	}
	if err := removeTrigger(ctx, tx, m.plan.table.sql()); err != nil {
		return err
	}
	name, box := forwardName(m.plan.box, m.plan.table.label()), m.store.Handle()
	if _, err := tx.Tx.ExecContext(ctx, m.plan.forward(name, m.store.Source(), box.DefaultTenantID, box.MaxPayload)); err != nil {
		return err
	}
	// So would a value that does not fit its column.
	if _, err := tx.Tx.ExecContext(ctx, "EXPLAIN "+m.plan.forwardTake(name)); err != nil {
		return err
	}
	// Deferred: the locks of ordering keys are held during COMMIT only, as those of a unit of work are.
	trigger := "CREATE CONSTRAINT TRIGGER " + forwardTrigger + " AFTER INSERT ON " + m.plan.table.sql() + //nolint:gosec // quoted names
		" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION " + name + "()"
	if _, err := tx.Tx.ExecContext(ctx, trigger); err != nil {
		return err
	}
	m.moved, m.dead = m.moved+int64(len(h.places)), m.dead+int64(len(h.dead))
	return m.note(ctx, tx, h)
}
