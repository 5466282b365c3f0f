package uow

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"
)

// byBun writes the aggregate with a statement of bun. stored is false if the row is not there in the expected version.
func (w *write) byBun(ctx context.Context, tx bun.Tx) (stored bool, err error) {
	if w.mapping.version == nil {
		return w.overwrite(ctx, tx)
	}
	// AggregateVersion must go on returning the version from which the events are counted.
	held := w.mapping.held(w.model)
	w.mapping.hold(w.model, w.next)
	defer w.mapping.hold(w.model, held)
	if w.insert {
		// A row with this key makes the INSERT do nothing instead of failing: an error would end the transaction, and
		// the function could not load the existing row.
		return affected(tx.NewInsert().Model(w.aggregate).On("CONFLICT (?) DO NOTHING", bun.Safe(w.mapping.keys)).Exec(ctx))
	}
	return affected(w.updateByBun(tx).Exec(ctx))
}

func (w *write) updateByBun(tx bun.Tx) *bun.UpdateQuery {
	m := w.mapping
	query := tx.NewUpdate().Model(w.aggregate).WherePK().Where("?TableAlias.? = ?", m.version.SQLName, w.expected)
	if m.table.SoftDeleteField != nil {
		query.WhereAllWithDeleted() // or a deleted row could not be restored
	}
	if m.version.SkipUpdate() { // bun would skip it here too
		for _, f := range m.changed {
			query.Set("? = ?", f.SQLName, assigned{f, w.model})
		}
	}
	return query
}

// overwrite inserts or updates an aggregate without a version. An update sets the values of bun's UPDATE: a zero value with a default is inserted
// as the default, and updated to zero.
func (w *write) overwrite(ctx context.Context, tx bun.Tx) (stored bool, err error) {
	m := w.mapping
	query := tx.NewInsert().Model(w.aggregate)
	if len(m.changed) == 0 {
		_, err := affected(query.On("CONFLICT (?) DO NOTHING", bun.Safe(m.keys)).Exec(ctx))
		return true, err // there are no other columns, so the row is equal
	}
	query.On("CONFLICT (?) DO UPDATE", bun.Safe(m.keys))
	for _, f := range m.changed {
		query.Set("? = ?", f.SQLName, overwritten{f, w.model})
	}
	return affected(query.Exec(ctx))
}

// assigned is the value that bun's UPDATE gives to a field, as it is when the query is written: hooks may change it before.
type assigned struct {
	field *schema.Field
	model reflect.Value
}

// AppendQuery implements [schema.QueryAppender].
func (a assigned) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	return a.field.AppendValueOrDefault(gen, b, a.model), nil
}

// overwritten is the same value within an upsert.
type overwritten assigned

// AppendQuery implements [schema.QueryAppender].
func (o overwritten) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	if insertsDefault(o.field, o.model) {
		if value := o.field.AppendValueOrDefault(gen, nil, o.model); string(value) != defaultText {
			return append(b, value...), nil
		}
	}
	return append(append(b, "EXCLUDED."...), o.field.SQLName...), nil
}

// affected reports whether a statement has found its row. If it has RETURNING, bun reports a missing row as [sql.ErrNoRows].
// bun sends RETURNING if a column is read back, for example a default. Then a row that was not found is an
// error of Scan.
func affected(res sql.Result, err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// conflict reads the stored version for the error. It reads the table by its primary key, because the model may hide the row, by a soft delete, a
// view or a hook.
func (w *write) conflict(ctx context.Context, tx bun.Tx, gen schema.QueryGen) error {
	c := &ConflictError{Type: w.aggregate.AggregateType(), ID: w.aggregate.AggregateID(), Expected: w.expected}
	m := w.mapping
	if m.version == nil {
		return c
	}
	query := tx.NewSelect().TableExpr(m.name).ColumnExpr("?", m.version.SQLName).ColumnExpr(softlyDeleted(gen, m.table.SoftDeleteField))
	for _, f := range m.table.PKs {
		query.Where("? = ?", f.SQLName, bun.Safe(f.AppendValue(gen, nil, w.model)))
	}
	// Without a row Found stays 0, which is a result and not an error: it was deleted, or there never was one.
	if err := query.Scan(ctx, &c.Found, &c.Deleted); !errors.Is(err, sql.ErrNoRows) {
		c.Err = err
	}
	return c
}

// softlyDeleted returns the condition under which bun regards a row as deleted.
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
