package pgsql

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"
)

// Rows are the result of a statement, or the error of sending it. The writes of the statement are committed once the rows were read to their end
// and Err returns nil.
type Rows struct {
	*sql.Rows // nil if the statement failed

	tx  *sql.Tx // ends with them
	err error
}

// Scan reads the columns of one row into dest, as [sql.Rows.Scan] does.
type Scan func(dest ...any) error

// Query runs a statement that returns rows. The error is that of the rows; [Each], [Collect] and [One] return it.
func (r *Runner) Query(ctx context.Context, db bun.IDB, constant string, args ...any) *Rows {
	text, err := r.TextFor(ctx, db, constant)
	if err != nil {
		return &Rows{err: err}
	}
	conn, tx, err := r.begin(ctx, db)
	if err != nil {
		return &Rows{err: err}
	}
	rows := QueryPlain(ctx, conn, text, r.withMode(args)...)
	if rows.err != nil {
		rows.err = end(tx, rows.err)
		return rows
	}
	rows.tx = tx
	return rows
}

// Querier is a pool, a connection or a transaction of [database/sql] or bun.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// QueryPlain runs a statement that belongs to no [Runner]: its text is sent as it is.
func QueryPlain(ctx context.Context, db Querier, text string, args ...any) *Rows {
	rows, err := db.QueryContext(ctx, text, args...) //nolint:rowserrcheck // Rows.Err
	return &Rows{Rows: rows, err: err}
}

// Each calls fn for each row and closes the rows. It stops at the first error of fn and returns it.
func Each(rows *Rows, fn func(scan Scan) error) error {
	defer func() { _ = rows.Close() }()
	scan := rows.Scan
	for rows.Next() {
		if err := fn(scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Collect returns the values that scan makes of the rows, and closes the rows. After an error it returns none.
func Collect[T any](rows *Rows, scan func(scan Scan, value *T) error) ([]T, error) {
	var list []T
	err := Each(rows, func(row Scan) error {
		var zero T
		list = append(list, zero) // a value of its own, scanned and appended afterwards, would be one object more per row
		return scan(row, &list[len(list)-1])
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Map returns the rows of two columns, a name and its value, by the names, and closes the rows. After an error it returns none.
func Map[V any](rows *Rows) (map[string]V, error) {
	all := map[string]V{}
	err := Each(rows, func(scan Scan) error {
		var name string
		var value V
		if err := scan(&name, &value); err != nil {
			return err
		}
		all[name] = value
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// One calls fn for the first row, if there is one, and closes the rows.
func One(rows *Rows, fn func(scan Scan) error) (found bool, err error) {
	defer func() { _ = rows.Close() }()
	if found = rows.Next(); found {
		if err := fn(rows.Scan); err != nil {
			return true, err
		}
		for rows.Next() { // to their end, which commits what the statement wrote
			continue
		}
	}
	return found, rows.Err()
}

// Next is [sql.Rows.Next]. It is false if the statement failed.
func (r *Rows) Next() bool {
	if r.Rows == nil {
		return false
	}
	if r.Rows.Next() {
		return true
	}
	r.finish(r.Rows.Err())
	return false
}

// Err is the error of the statement, of reading the rows, or of the COMMIT.
func (r *Rows) Err() error {
	if r.Rows == nil {
		return r.err
	}
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

// Close is [sql.Rows.Close]. Rows that were not read to their end are rolled back.
func (r *Rows) Close() error {
	if r.Rows == nil {
		return nil
	}
	err := r.Rows.Close()
	r.finish(sql.ErrTxDone)
	return err
}

// finish ends the transaction that was begun for this query alone, when its rows are read or closed.
func (r *Rows) finish(err error) {
	if tx := r.tx; tx != nil {
		r.tx = nil
		r.err = end(tx, err)
	}
}
