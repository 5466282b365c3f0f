// Package unit has the methods of a unit of work that only oncebox's own packages need: statements that share a round trip with BEGIN and COMMIT,
// and a proof of the outcome. They are not methods of uow.Unit, because nobody else needs them.
package unit

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Unit is the unit of work in a context. Package uow implements it.
type Unit interface {
	// Send sends statements of the unit: in one round trip, and BEGIN with them if they are its first, if the pool was opened by config.OpenDB, else
	// one after the other, see [pgsql.Send].
	Send(ctx context.Context, b *pgsql.Batch) error

	// SendLast adds statements that the unit sends after all others, those of its sinks included, and together with COMMIT if it can: on a pool of
	// config.OpenDB, if all sinks with events are a [Sink], and the unit knows its id, see Identified. The statements of several calls are sent in
	// their order. Statements of a savepoint that is rolled back are not sent. If a statement fails, the unit fails. ok is false, and nothing will be
	// sent, if the unit has ended.
	SendLast(b *pgsql.Batch) (ok bool)

	// Identified sets the id of the unit's transaction (pg_current_xact_id), which some statement has returned. It saves the statement before COMMIT
	// that asks for it, and COMMIT can be sent together with other statements.
	Identified(xid string)

	// ProvedBy gives the unit a way to find out after a crash of the server whether it was committed: by a row that it writes. If the answer to COMMIT
	// is lost in a crash, and there is neither such a row nor an event in a sink that can find it, the outcome is unknown. A proof of a savepoint that
	// is rolled back is not used.
	ProvedBy(find Proof)

	// Used reports whether some code has taken the unit from a context: by uow.FromContext, or a manager's DB, Do or Begin. If not, the handler has
	// done nothing in the unit, which a middleware logs.
	Used() bool
}

// Sink is a uow.Sink whose statements are sent by the unit: in one round trip, together with COMMIT if that is possible.
type Sink interface {
	// Enqueue adds the statements that store evs to q. A statement that stores less than it should has to fail, because COMMIT may be on its way
	// before its result is seen. Its callback fills in the fields of the event that come from the result. tx is for reads that are needed before.
	Enqueue(ctx context.Context, tx bun.IDB, q *Queue, evs []event.Envelope) error
}

// Queue holds the statements that a unit sends at its end.
type Queue struct {
	pgsql.Batch

	// XID is the id of the transaction (pg_current_xact_id), for callbacks of statements that return it, see [Unit].Identified.
	XID string
}

// Proof looks for a row that only the transaction with the id xid can have written. It is called when the answer to COMMIT was lost, and
// should find the row by an index. false: there is no such row, or it could be one of another transaction.
//
// A row that was written within a savepoint, so in a unit within the unit, proves nothing: its xmin is the id of the savepoint, and not
// xid (PostgreSQL, "Subtransactions").
type Proof func(ctx context.Context, db bun.IDB, xid string) (bool, error)

// Of returns the innermost unit that ctx carries. It panics if there is none: it is called within Manager.Do.
func Of(ctx context.Context) Unit { return pgsql.UnitOf(ctx).(Unit) } //nolint:forcetypeassert // see above
