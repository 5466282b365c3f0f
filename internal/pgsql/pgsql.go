// Package pgsql runs SQL constants: it inserts the schema into them, prepares hot statements once per connection, and classifies PostgreSQL's error
// codes.
//
// bun writes arguments into the text of a statement, so that the server parses and plans each call anew; that costs a
// third of the rate of a small transaction. The statements here go to the database/sql handles beneath bun instead,
// with $n arguments.
package pgsql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"
)

// handle is what *sql.DB, *sql.Tx and *sql.Conn have in common.
type handle interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// unwrap returns the database/sql handle beneath a bun handle.
func unwrap(db bun.IDB) (handle, error) {
	switch v := db.(type) {
	case *bun.DB:
		return v.DB, nil
	case bun.Tx:
		return v.Tx, nil
	case *bun.Tx:
		return v.Tx, nil
	case bun.Conn:
		return v.Conn, nil
	default:
		return nil, fmt.Errorf("a %T is neither *bun.DB nor bun.Tx nor bun.Conn: pass the handle that bun gave you", db)
	}
}

// Runner runs statement constants in one schema. Outside of a transaction a statement is READ COMMITTED, whatever the default of
// the database, the role and the session is.
type Runner struct {
	places    *places
	mode      pgx.QueryExecMode
	limit     time.Duration // 0: none
	confirmed bool          // see Confirmed
	isolation *isolation
}

// New returns a runner. If name is "", the first statement of each pool finds the schema, see [FindSchema]. pooler says that a transaction-mode
// pooler stands before the database, where a prepared statement may be unknown to the next connection. words are pairs of a placeholder in
// statements, such as {columns}, and its text.
func New(name string, pooler bool, words ...string) *Runner {
	r := &Runner{mode: pgx.QueryExecModeCacheStatement, places: &places{words: words}, isolation: &isolation{}}
	if name != "" {
		r.places.configured = newPlace(name, words)
	}
	if pooler {
		r.mode = pgx.QueryExecModeExec
	}
	return r
}

// AdHoc returns a runner of the same schema and pool whose statements are planned anew each time, without a limit.
func (r *Runner) AdHoc() *Runner {
	other := *r
	other.mode, other.limit, other.confirmed = pgx.QueryExecModeExec, 0, false
	return &other
}

// Within returns a runner that limits the time of each statement of QueryRow and Exec. After that its connection is closed.
func (r *Runner) Within(limit time.Duration) *Runner {
	other := *r
	other.limit = limit
	return &other
}

// bounded returns the context of one statement, and the function to call with its error when it has ended.
func (r *Runner) bounded(ctx context.Context) (bounded context.Context, done func(err error) error) {
	if r.limit == 0 {
		return ctx, func(err error) error { return err }
	}
	bounded, cancel := context.WithTimeout(ctx, r.limit)
	return bounded, func(err error) error {
		late := bounded.Err() != nil && ctx.Err() == nil
		cancel()
		if err != nil && late {
			return fmt.Errorf("the database has not answered for %s: %w", r.limit, err)
		}
		return err
	}
}

// QueryRow runs a statement that returns one row, and scans it into dest.
func (r *Runner) QueryRow(ctx context.Context, db bun.IDB, constant string, args []any, dest ...any) error {
	return r.run(ctx, db, constant, func(ctx context.Context, conn handle, text string) error {
		return conn.QueryRowContext(ctx, text, r.withMode(args)...).Scan(dest...)
	})
}

// Exec runs a statement and returns how many rows it touched.
func (r *Runner) Exec(ctx context.Context, db bun.IDB, constant string, args ...any) (n int64, err error) {
	err = r.run(ctx, db, constant, func(ctx context.Context, conn handle, text string) error {
		res, err := conn.ExecContext(ctx, text, r.withMode(args)...)
		if err == nil {
			n, err = res.RowsAffected()
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// run calls fn with the handle for a statement, and commits the statement if it is a transaction of its own.
func (r *Runner) run(ctx context.Context, db bun.IDB, constant string, fn func(ctx context.Context, conn handle, text string) error) error {
	ctx, done := r.bounded(ctx)
	text, err := r.TextFor(ctx, db, constant)
	if err != nil {
		return done(err)
	}
	if pool, ok := db.(*bun.DB); ok && r.confirmed {
		return done(r.alone(ctx, pool, func(conn handle) error { return fn(ctx, conn, text) }))
	}
	conn, tx, err := r.begin(ctx, db)
	if err != nil {
		return done(err)
	}
	return done(end(tx, fn(ctx, conn, text)))
}

// withMode adds the argument by which pgx chooses how to send this one statement, whatever the default of the connection is.
func (r *Runner) withMode(args []any) []any {
	return append([]any{r.mode}, args...)
}

// SQLSTATE codes on which decisions depend. PostgreSQL, appendix A.
const (
	CodeUniqueViolation      = "23505"
	CodeSerialization        = "40001"
	CodeDeadlock             = "40P01"
	CodeLockNotAvailable     = "55P03"
	CodeUndefinedTable       = "42P01"
	codeUndefinedFunction    = "42883"
	CodeInvalidStatementName = "26000"
	CodeProtocolViolation    = "08P01"
	CodeUndefinedObject      = "42704"
	CodeInvalidCatalogName   = "3D000"
	// CodeInsufficientPrivilege is insufficient_privilege.
	CodeInsufficientPrivilege = "42501"
	codeDuplicateStatement    = "42P05"
	CodeInFailedTransaction   = "25P02"
	CodeNoSavepoint           = "3B001"
	codeReadOnly              = "25006"
	codeIdleInTransaction     = "25P03"
)

// Code returns the SQLSTATE of a server error, "" for any other error.
func Code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// IsVictim reports whether PostgreSQL chose the transaction as the victim of a deadlock or of a serialization failure.
func IsVictim(err error) bool {
	code := Code(err)
	return code == CodeSerialization || code == CodeDeadlock
}

// IsMisfit reports whether err says that a statement does not fit the tables or the role: a name that is not there, or a right that is missing
// (classes 42 and 3F). A repetition fails in the same way until somebody mends it.
func IsMisfit(err error) bool {
	code := Code(err)
	return strings.HasPrefix(code, "42") || strings.HasPrefix(code, "3F")
}

// IsConnectionError reports whether err is about the connection and not about the statement: it broke, or the server ended the session (classes 08
// and 57P of PostgreSQL's error codes, Appendix A, and 25P03, idle in its transaction for too long).
func IsConnectionError(err error) bool {
	if code := Code(err); code != "" {
		return endsSessions(code) || code == codeIdleInTransaction
	}
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network) || pgconn.SafeToRetry(err)
}

// explainedError is an error whose text says what to do.
type explainedError struct{ error }

func (e *explainedError) Unwrap() error { return e.error }

// Explain adds advice to an error, if there is any and the text does not contain it yet.
func Explain(err error) error {
	if _, said := errors.AsType[*explainedError](err); said {
		return err
	}
	if explained := explain(err); explained != err { //nolint:errorlint // whether something was added
		return &explainedError{explained}
	}
	return err
}

func explain(err error) error {
	switch Code(err) {
	case CodeUndefinedTable, codeUndefinedFunction:
		return fmt.Errorf("%w: oncebox's tables are missing: call migrations.Up (App.Migrate) first, or set the schema they are in", err)
	case codeReadOnly:
		return fmt.Errorf("%w: it needs a server that takes writes, and this is a standby or was set to read-only: "+
			"correct the host of the database's URL, or add target_session_attrs=read-write", err)
	case CodeInvalidStatementName, codeDuplicateStatement:
		return fmt.Errorf("%w: %w", err, ErrPooler)
	case CodeInsufficientPrivilege:
		return fmt.Errorf("%w: have the owner of the tables run %s, with the role of the database's URL; "+
			"the command oncebox grants prints all that a role needs", err, grant(err))
	default:
		return err
	}
}

// denied matches the object in PostgreSQL's English error about a missing right.
var denied = regexp.MustCompile(`permission denied for (\w+) (\S+)`)

// grant returns the statement that gives a role its missing right, as far as the error shows which right that is.
func grant(err error) string {
	rights := map[string]string{
		"table": "SELECT, INSERT, UPDATE, DELETE ON", "view": "SELECT ON", "sequence": "USAGE, SELECT ON SEQUENCE", "function": "EXECUTE ON FUNCTION",
		"schema": "USAGE ON SCHEMA",
	}
	var what []string
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		what = denied.FindStringSubmatch(answer.Message)
	}
	if what == nil || rights[what[1]] == "" {
		return "GRANT"
	}
	return "GRANT " + rights[what[1]] + " " + what[2] + " TO ..."
}
