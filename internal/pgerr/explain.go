package pgerr

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrPooler means that a statement that was prepared in one transaction is unknown in the next one.
var ErrPooler = errors.New("a transaction-mode pooler stands before the database, which loses prepared statements: " +
	"set ONCEBOX_POOLER=true (Config.Pooler)")

// explainedError is an error whose text includes what to do.
type explainedError struct{ error }

func (e *explainedError) Unwrap() error { return e.error }

// Explain adds advice to an error, if there is any that its text does not contain yet.
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
	case UndefinedTable, undefinedFunction:
		return fmt.Errorf("%w: oncebox's tables are missing: call migrations.Up (App.Migrate) first, or set the schema they are in", err)
	case readOnly:
		return fmt.Errorf("%w: it needs a server that takes writes, and this is a standby or was set to read-only: "+
			"correct the host of the database's URL, or add target_session_attrs=read-write", err)
	case InvalidStatementName, DuplicateStatement:
		return fmt.Errorf("%w: %w", err, ErrPooler)
	case InsufficientPrivilege:
		return fmt.Errorf("%w: have the owner of the tables run %s, with the role of the database's URL; "+
			"the command oncebox grants prints all that a role needs", err, grant(err))
	default:
		return err
	}
}

// denied matches PostgreSQL's English message about a missing right, with the object. In another language (lc_messages)
// it does not match, and the advice is only "GRANT".
var denied = regexp.MustCompile(`permission denied for (\w+) (\S+)`)

// grant returns the GRANT statement for a missing right, if the error shows which right is missing.
func grant(err error) string {
	// The message does not say which right is missing, so all rights that oncebox uses on such an object are named.
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
