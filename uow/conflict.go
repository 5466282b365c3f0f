package uow

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"
)

// ConflictError says which aggregate was changed by somebody else. It matches [ErrConflict], and [ErrExists] if the aggregate that was
// saved is a new one.
type ConflictError struct {
	// Type and ID are those of the aggregate.
	Type, ID string
	// Expected is the version that the aggregate was loaded with, 0 for a new one. Found is the one that is stored, 0 if there is no row.
	Expected, Found int64
	// Deleted says that the row that is stored is deleted softly: what loads in bun's usual way does not see it.
	Deleted bool
	// Err is why Found could not be read, for example that the connection broke after the conflict was found. nil: it was read.
	Err error
}

func (e *ConflictError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("uow: %s %s: expected version %d, which is not there, and what is there could not be read: %v", e.Type, e.ID, e.Expected, e.Err)
	}
	if e.Expected == 0 && e.Deleted {
		return fmt.Sprintf("uow: %s %s exists already, with version %d, and is deleted softly: a new aggregate needs another id, and to restore "+
			"this one, load it with WhereAllWithDeleted and clear its deletion", e.Type, e.ID, e.Found)
	}
	if e.Expected == 0 {
		return fmt.Sprintf("uow: %s %s exists already, with version %d: a new aggregate needs another id, and to change this one, load it first",
			e.Type, e.ID, e.Found)
	}
	if e.Found == 0 {
		return fmt.Sprintf("uow: %s %s: expected version %d, and there is no such row: it was deleted, or it is new and something but Save has set its "+
			"version; a new aggregate has version 0", e.Type, e.ID, e.Expected)
	}
	deleted := ""
	if e.Deleted {
		deleted = ", which is deleted softly"
	}
	return fmt.Sprintf("uow: %s %s: expected version %d, found %d%s", e.Type, e.ID, e.Expected, e.Found, deleted)
}

// Unwrap returns Err.
func (e *ConflictError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, [ErrConflict]) true, and errors.Is(err, [ErrExists]) for a new aggregate.
func (e *ConflictError) Is(target error) bool {
	return target == ErrConflict || target == ErrExists && e.Expected == 0
}

// vain tells whether to run the function again would be in vain: it has made a new aggregate of one that it does not see.
func (e *ConflictError) vain() bool { return e.Expected == 0 && e.Deleted }

// conflict finds out what is there instead. It looks at the row that the key sees: the model may hide it, by a soft delete, a view or a hook.
func (r *root) conflict(ctx context.Context, w *write) error {
	c := &ConflictError{Type: w.aggregate.AggregateType(), ID: w.aggregate.AggregateID(), Expected: w.expected}
	m := w.mapping
	if m.version == nil {
		return c
	}
	gen := r.manager.db.QueryGen()
	query := r.tx.NewSelect().TableExpr(m.name).ColumnExpr("?", m.version.SQLName).ColumnExpr(softlyDeleted(gen, m.table.SoftDeleteField))
	for _, f := range m.table.PKs {
		query.Where("? = ?", f.SQLName, bun.Safe(f.AppendValue(gen, nil, w.model)))
	}
	if err := query.Scan(ctx, &c.Found, &c.Deleted); !errors.Is(err, sql.ErrNoRows) {
		c.Err = err
	}
	return c
}

// softlyDeleted returns the condition by which bun takes a row for deleted.
func softlyDeleted(gen schema.QueryGen, f *schema.Field) string {
	switch {
	case f == nil:
		return "FALSE"
	case f.IsPtr || f.NullZero:
		return string(f.SQLName) + " IS NOT NULL"
	default:
		return string(gen.Dialect().AppendTime([]byte(f.SQLName+" <> "), time.Time{}))
	}
}
