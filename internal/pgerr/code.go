// Package pgerr classifies the errors of PostgreSQL and of connections to it, and says what to do about them.
package pgerr

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATE codes on which decisions depend (PostgreSQL, Appendix A).
const (
	Deadlock              = "40P01"
	InFailedTransaction   = "25P02"
	InsufficientPrivilege = "42501"
	InvalidCatalogName    = "3D000"
	InvalidStatementName  = "26000"
	LockNotAvailable      = "55P03"
	NoSavepoint           = "3B001"
	ProtocolViolation     = "08P01"
	Serialization         = "40001"
	UndefinedObject       = "42704"
	UndefinedTable        = "42P01"
	UniqueViolation       = "23505"

	adminShutdown       = "57P01"
	cannotConnectNow    = "57P03"
	crashShutdown       = "57P02"
	DuplicateStatement  = "42P05"
	featureNotSupported = "0A000"
	idleInTransaction   = "25P03"
	internalError       = "XX000"
	notInState          = "55000"
	readOnly            = "25006"
	tooManyConnections  = "53300"
	undefinedFunction   = "42883"
)

// Code returns the SQLSTATE of a server error, "" for any other error.
func Code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// IsVictim reports whether PostgreSQL chose the transaction as the victim of a deadlock or of a serialization failure.
// It may be run again, because nothing of it was committed.
func IsVictim(err error) bool {
	code := Code(err)
	return code == Serialization || code == Deadlock
}

// IsMisfit reports whether a statement failed because it does not fit the tables or the role: a name does not exist, or
// a right is missing (classes 42 and 3F). It fails again until somebody changes that.
func IsMisfit(err error) bool {
	code := Code(err)
	return strings.HasPrefix(code, "42") || strings.HasPrefix(code, "3F")
}

// IsConnectionError reports whether err is about the connection and not about the statement: the connection broke, or
// the server has ended the session (classes 08 and 57P of PostgreSQL's error codes, Appendix A, and 25P03, idle in a
// transaction for too long).
func IsConnectionError(err error) bool {
	if code := Code(err); code != "" {
		return endsSessions(code) || code == idleInTransaction
	}
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &network) || pgconn.SafeToRetry(err)
}

// TakesNoWrites reports whether err says that the server, or the session, is read-only: a standby, a server that recovers and may be read meanwhile
// (hot_standby, PostgreSQL 26.4), or a server that operators have set to read-only.
func TakesNoWrites(err error) bool { return Code(err) == readOnly }

// IsOutage reports whether err is about the state of the server, so that all users of the server fail alike: it is away, does not answer, ends its
// sessions, takes no writes, or has no room left (classes 08, 53 and 57P of PostgreSQL's error codes, and 25006). It is for the log. A network
// error of a read or a write may come from another connection than the database's, and an error with a URL certainly does.
func IsOutage(err error) bool {
	if code := Code(err); code != "" {
		return endsSessions(code) || strings.HasPrefix(code, "53") || code == readOnly
	}
	if _, foreign := errors.AsType[*url.Error](err); foreign {
		return false
	}
	if _, unconnected := errors.AsType[*pgconn.ConnectError](err); unconnected || pgconn.Timeout(err) {
		return true
	}
	if broken, ok := errors.AsType[*net.OpError](err); ok {
		return broken.Op == "read" || broken.Op == "write"
	}
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed)
}

// endsSessions reports whether the code of an error is about the connection, or the server ends the session: classes 08 and 57P of PostgreSQL's
// error codes, Appendix A.
func endsSessions(code string) bool {
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P")
}
