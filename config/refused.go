package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// refused adds to the error of a connection that could not be opened what to do about it.
func refused(pc *pgx.ConnConfig, err error) error {
	what := "does not answer: start it, or correct ONCEBOX_DATABASE_URL"
	answer, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && pgerr.IsAway(err):
		what = "takes no connections at present"
	case ok:
		what = advice(answer.Code, pc)
	}
	return fmt.Errorf("config: OpenDB: PostgreSQL at %s:%d, database %q, %s: %w", pc.Host, pc.Port, pc.Database, what, err)
}

// advice returns what to do about the SQLSTATE with which the server, or a pooler before it, refused the connection (PostgreSQL, Appendix A).
func advice(code string, pc *pgx.ConnConfig) string {
	role, database := pgx.Identifier{pc.User}.Sanitize(), pgx.Identifier{pc.Database}.Sanitize()
	switch {
	case code == pgerr.ProtocolViolation || code == pgerr.UndefinedObject: // so do poolers, which know few parameters
		return "refuses a parameter of the session. If it is a pooler of transactions, set ONCEBOX_POOLER=true. If it pools sessions, set " +
			"ONCEBOX_IDLE_IN_TRANSACTION=-1, or have it ignore the parameter (PgBouncer: ignore_startup_parameters)"
	case code == pgerr.InvalidCatalogName:
		return "does not exist on this server: run CREATE DATABASE " + database + ", or correct ONCEBOX_DATABASE_URL"
	case code == pgerr.InsufficientPrivilege:
		return "is closed to the role: run GRANT CONNECT ON DATABASE " + database + " TO " + role + ", or correct ONCEBOX_DATABASE_URL"
	case strings.HasPrefix(code, "28"): // PostgreSQL reports an unknown role as a wrong password, so that nobody can guess names
		return "refuses role or password: correct ONCEBOX_DATABASE_URL, or run CREATE ROLE " + role + " LOGIN PASSWORD '...' (ALTER ROLE if " +
			"it exists); pg_hba.conf decides which hosts it may come from"
	default:
		return "refuses the connection"
	}
}
