package pgsql

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Batch holds statements that are sent together, see [Send]. It does what pgx.Batch does with a quarter of the objects: its statements are prepared
// already, so nothing is asked about their results.
type Batch struct {
	statements []statement
	// room is that of the first two statements. Most batches have no other.
	room [2]statement

	// Within is the time that the server has for all answers, that to COMMIT included. After it the connection is closed, and the error is a
	// [context.DeadlineExceeded]. 0: no limit but the context's.
	Within time.Duration
}

// statement is one statement of a [Batch].
type statement struct {
	text string
	args []any
	// read takes the result. nil: only an error counts.
	read func(*Result) error
}

// Queue adds a statement whose result is not read.
func (b *Batch) Queue(text string, args ...any) {
	b.add(statement{text: text, args: args})
}

// Query adds a statement whose result read takes. An error of read ends the batch; the statements behind it may have been executed.
func (b *Batch) Query(read func(*Result) error, text string, args ...any) {
	b.add(statement{text, args, read})
}

func (b *Batch) add(s statement) {
	if b.statements == nil {
		b.statements = b.room[:0]
	}
	b.statements = append(b.statements, s)
}

// Append adds the statements of another batch.
func (b *Batch) Append(other *Batch) {
	if len(b.statements) == 0 {
		b.statements = slices.Clip(other.statements) // shared: what is added to either of them later is not
		return
	}
	b.statements = append(b.statements, other.statements...)
}

// forPgx returns the statements as a tracer of pgx reads them.
func (b *Batch) forPgx() *pgx.Batch {
	same := &pgx.Batch{}
	for i := range b.statements {
		same.Queue(b.statements[i].text, b.statements[i].args...)
	}
	return same
}

// Len returns the number of statements.
func (b *Batch) Len() int { return len(b.statements) }

// Result is the result of a statement of a [Batch]: read by pgx, or by database/sql where each statement is sent by itself.
type Result struct {
	results *pgconn.ResultReader
	types   *pgtype.Map

	plain *sql.Rows // nil: there are results
}

// Next moves to the next row. It returns false behind the last row and after an error, see Err.
func (r *Result) Next() bool {
	if r.plain != nil {
		return r.plain.Next()
	}
	return r.results.NextRow()
}

// Err returns the error that has ended the rows. Call it when Next has returned false.
func (r *Result) Err() error {
	if r.plain != nil {
		return r.plain.Err()
	}
	_, err := r.results.Close()
	return err
}

// Scan reads the row. A nil skips a column.
func (r *Result) Scan(dest ...any) error {
	if r.plain != nil {
		for i, d := range dest {
			if d == nil {
				dest[i] = new(any)
			}
		}
		return r.plain.Scan(dest...)
	}
	values, columns := r.results.Values(), r.results.FieldDescriptions()
	if len(values) != len(dest) {
		return errColumns
	}
	for i, d := range dest {
		if d == nil {
			continue
		}
		if err := r.types.Scan(columns[i].DataTypeOID, columns[i].Format, values[i], d); err != nil {
			return pgx.ScanArgError{ColumnIndex: i, FieldName: columns[i].Name, Err: err}
		}
	}
	return nil
}

var errColumns = errors.New("pgsql: the statement returns another number of columns than are read")

// One reads the only row. The error is [pgx.ErrNoRows] if there is none.
func (r *Result) One(dest ...any) error {
	if r.Next() {
		return r.Scan(dest...)
	}
	if err := r.Err(); err != nil {
		return err
	}
	return pgx.ErrNoRows
}

// RawValues returns the values as text, nil for NULL, and otherwise in the format that the server sent. They are valid until the next call of Next.
func (r *Result) RawValues() [][]byte {
	if r.plain == nil {
		return r.results.Values()
	}
	columns, err := r.plain.Columns()
	if err != nil {
		return nil
	}
	// Copies: after sql.RawBytes the row could not be scanned again.
	values, dest := make([][]byte, len(columns)), make([]any, len(columns))
	for i := range values {
		dest[i] = &values[i]
	}
	if r.plain.Scan(dest...) != nil {
		return nil
	}
	return values
}

// oneByOne sends the statements one after the other, as the connection sends statements: its pool may stand behind a pooler that it knows of. The
// first error ends it.
func (b *Batch) oneByOne(ctx context.Context, tx *sql.Tx) error {
	ctx, done := limited(ctx, b.Within)
	for i := range b.statements {
		if err := b.statements[i].alone(ctx, tx); err != nil {
			return done(err)
		}
	}
	return done(nil)
}

func (s *statement) alone(ctx context.Context, tx *sql.Tx) error {
	if s.read == nil {
		_, err := tx.ExecContext(ctx, s.text, s.args...)
		return err
	}
	rows, err := tx.QueryContext(ctx, s.text, s.args...)
	if err != nil {
		return err
	}
	err = s.read(&Result{plain: rows})
	return errors.Join(err, rows.Close(), rows.Err()) //nolint:sqlclosecheck // its error counts
}
