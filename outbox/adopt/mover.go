package adopt

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/outbox"
)

// Mover moves the unsent rows of a table into an outbox of the same database. Several movers of one table, in one or more processes, take turns. A Mover
// is used by one goroutine at a time.
type Mover struct {
	store *outbox.Store
	plan  *plan
	cfg   Config

	stay  staying
	moved int64
	dead  int64     // those of them that became dead letters
	told  time.Time // when Run last logged how many rows it has moved
	noted time.Time // when outbox_adopted was last written
}

// New returns the mover of the table that a mapping names. It asks the database whether the columns exist and fit.
func New(ctx context.Context, store *outbox.Store, mapping *Mapping, cfg *Config) (*Mover, error) {
	c := cfg.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := store.Ping(ctx); err != nil {
		return nil, err
	}
	db := store.Handle().DB
	box, err := boxOf(ctx, store)
	if err != nil {
		return nil, err
	}
	p, err := newPlan(ctx, db.DB, mapping, box)
	if err != nil {
		return nil, err
	}
	m := &Mover{store: store, plan: p, cfg: c}
	m.stay.forget()
	return m, nil
}

// boxOf returns the schema of oncebox, quoted, as the statements of the outbox have it.
func boxOf(ctx context.Context, store *outbox.Store) (string, error) {
	text, err := store.Handle().Run.TextFor(ctx, store.Handle().DB, "{schema}.outbox")
	return strings.TrimSuffix(text, ".outbox"), wrap("find the schema of oncebox", err)
}

// Summary is what a mover has done.
type Summary struct {
	// Moved is how many rows it has moved.
	Moved int64 `json:"moved"`
	// Dead is how many of them became dead letters, because no event can be made of them and rows are forwarded, see [Mover.Forward].
	Dead int64 `json:"dead,omitempty"`
	// Left is how many unsent rows are still in the table: rows that no event can be made of, and rows behind them in their order.
	Left int64 `json:"left"`
	// Problems are the first 1000 rows that no event can be made of.
	Problems []Problem `json:"problems,omitempty"`
}

// Once moves all rows that are there. It returns when none is left that can be moved. The summary counts also what was moved before an error.
func (m *Mover) Once(ctx context.Context) (Summary, error) {
	m.stay.forget()
	for {
		n, err := m.batch(ctx)
		m.moved += int64(n)
		switch {
		case errors.Is(err, errBusy) || isPassing(err):
			m.store.Telemetry().Logger.WarnContext(ctx, "oncebox: rows wait to be adopted", "table", m.plan.table.label(), "error", err)
			if err := backoff.Wait(ctx, m.cfg.Interval); err != nil {
				return Summary{Moved: m.moved}, err
			}
		case err != nil:
			return Summary{Moved: m.moved}, err
		case m.stay.ended:
			return m.Summary(ctx)
		}
	}
}

// Run moves rows until ctx is done. It goes on after errors, which it logs. When it returns, nothing is half done.
func (m *Mover) Run(ctx context.Context) error {
	log := m.store.Telemetry().Logger
	for ctx.Err() == nil {
		n, err := m.batch(ctx)
		m.moved += int64(n)
		if err != nil && !errors.Is(err, errBusy) && ctx.Err() == nil {
			log.WarnContext(ctx, "oncebox: rows wait to be adopted", "table", m.plan.table.label(), "error", err)
			m.noteError(ctx, err)
		}
		if now := time.Now(); n > 0 && now.Sub(m.told) >= time.Minute {
			m.told = now
			log.InfoContext(ctx, "oncebox: rows are adopted", "table", m.plan.table.label(), "moved", m.moved)
		}
		if err == nil && !m.stay.ended {
			continue
		}
		_ = backoff.Wait(ctx, m.cfg.Interval) // the loop looks at ctx
		m.stay.forgetOld(m.cfg.Recheck)
	}
	return nil
}

// Summary counts what was moved and what is left.
func (m *Mover) Summary(ctx context.Context) (Summary, error) {
	s := Summary{Moved: m.moved, Dead: m.dead, Problems: m.stay.list()}
	err := m.store.Handle().DB.DB.QueryRowContext(ctx, m.plan.count(), pgx.QueryExecModeExec).Scan(&s.Left)
	return s, wrap("count the rows of "+m.plan.table.label(), err)
}

// errBusy means that another process moves rows of the table just now.
var errBusy = errors.New("another process moves rows of this table")

// isPassing reports whether a transaction may be run again at once.
func isPassing(err error) bool {
	return pgerr.IsVictim(err) || pgerr.Code(err) == pgerr.LockNotAvailable
}

const (
	// One batch at a time: of two, the later could commit first. The lock ends with the transaction, so nobody has to take it from a process that died,
	// and none that lost it can write.
	tryTurn  = `SELECT pg_try_advisory_xact_lock(hashtextextended('oncebox.adopt.' || $1, 0))`
	takeTurn = `SELECT pg_advisory_xact_lock(hashtextextended('oncebox.adopt.' || $1, 0))`
	// An old publisher, or somebody at a prompt, may hold a row. The wait is bounded so that the log says so.
	boundWait = `SET LOCAL lock_timeout = '5s'`
)

// batch moves the first rows that can be moved, in one transaction. It returns how many.
//
// Each batch looks from the beginning, and no position is kept: a row whose transaction took long appears before rows that were moved already, and rows
// of its key that were written after its commit must not be taken before it.
func (m *Mover) batch(ctx context.Context) (moved int, err error) {
	var h haul
	// READ COMMITTED, whatever the default is: rows have to be read as of after the lock.
	err = m.store.Handle().DB.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		var mine bool
		if err := tx.Tx.QueryRowContext(ctx, tryTurn, pgx.QueryExecModeExec, m.plan.table.label()).Scan(&mine); err != nil {
			return err
		}
		if !mine {
			return errBusy
		}
		if _, err := tx.Tx.ExecContext(ctx, boundWait); err != nil {
			return err
		}
		if h, err = m.move(ctx, tx, m.cfg.BatchSize); err != nil {
			return err
		}
		return m.note(ctx, tx, h)
	})
	if err != nil {
		return 0, wrap("move rows of "+m.plan.table.label(), err)
	}
	log := m.store.Telemetry().Logger
	if m.stay.add(h.problems); len(m.stay.byPlace) > mostProblems {
		return 0, m.tooMany()
	}
	m.stay.ended = h.read < m.cfg.BatchSize && len(h.dead) == 0
	for _, p := range h.problems {
		log.WarnContext(ctx, "oncebox: a row cannot be adopted and stays", "table", m.plan.table.label(), "row", p.Row, "at", p.At, "error", p.Reason)
	}
	for _, p := range h.dead {
		log.WarnContext(ctx, "oncebox: a row cannot be adopted and becomes a dead letter", "table", m.plan.table.label(), "row", p.Row, "error", p.Reason)
	}
	if len(h.evs) > 0 {
		m.store.Committed(ctx, h.evs)
	}
	m.dead += int64(len(h.dead))
	return len(h.evs) + len(h.dead), nil
}

// tooMany is the error of a mapping that fits no row, or hardly any. It forgets the rows, so that the next batch begins again.
func (m *Mover) tooMany() error {
	first := m.stay.list()[0]
	m.stay.forget()
	return fmt.Errorf("adopt: more than %d rows of %s cannot be adopted, such as row %q: %s. Correct the mapping, or the rows; where leaves rows out",
		mostProblems, m.plan.table.label(), first.Row, first.Reason)
}

// errStillUnsent means that the same rows would be moved again and again.
var errStillUnsent = errors.New("a row that was marked still counts as unsent: correct mark, unsent or where in the mapping. Nothing was moved")

// wrap adds the call that failed to an error, and what to do about it where that is known.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("adopt: %s: %w", what, pgerr.Explain(err))
}
