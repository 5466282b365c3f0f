package pgsql

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	codeTooManyConnections = "53300"
	codeNotInState         = "55000"
	codeAdminShutdown      = "57P01"
	codeCrashShutdown      = "57P02"
	codeCannotConnectNow   = "57P03"
)

// IsAway reports whether err says that the database is away, which passes by itself: nobody answers, the connection breaks, the server starts,
// recovers or shuts down, it has no connection left, it is closed to all for the time being, or none of several servers takes writes yet. It is
// false if one of several servers has given an answer that stays the same: a wrong password, certificate or name of a database.
//
// The end of a context looks like a server that does not answer: the caller looks at its own context first.
func IsAway(err error) bool {
	away, other := false, false
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	leaves(err, func(leaf error) {
		switch answer, ok := leaf.(*pgconn.PgError); { //nolint:errorlint // each leaf is looked at
		case ok && isAwayAnswer(answer, connecting), !ok && isBreak(leaf):
			away = true
		case !ok && connecting && leaf.Error() == noTLS: // asked again without TLS, unless that is forbidden
		default:
			other = true
		}
	})
	return away && !other
}

// TakesNoWrites reports whether err says that the server, or the session, is read-only: a standby, a server that recovers and may be read meanwhile
// (hot_standby, PostgreSQL 26.4), or one that operators have set so.
func TakesNoWrites(err error) bool { return Code(err) == codeReadOnly }

// endsSessions reports whether the code of an error is about the connection, or the server ends the session: classes 08 and 57P of PostgreSQL's error codes,
// Appendix A.
func endsSessions(code string) bool {
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P")
}

// IsOutage reports whether err is about the state of the server, by which all that use it fail alike: it is away, does not answer, ends its sessions,
// takes no writes, or has no room left (classes 08, 53 and 57P of PostgreSQL's error codes, and 25006). It is for the log. What breaks while it is
// read from or written to may be another connection than the database's; a URL that was asked for is one for certain.
func IsOutage(err error) bool {
	if code := Code(err); code != "" {
		return endsSessions(code) || strings.HasPrefix(code, "53") || code == codeReadOnly
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

// noTLS is what pgx says where a server, or one that starts, does without TLS.
const noTLS = "server refused TLS connection"

// isAwayAnswer is for what a server, or a pooler before it, answers (PostgreSQL, Appendix A).
func isAwayAnswer(answer *pgconn.PgError, connecting bool) bool {
	switch code := answer.Code; code {
	case codeTooManyConnections, codeAdminShutdown, codeCrashShutdown, codeCannotConnectNow:
		return true
	case codeNotInState: // ALTER DATABASE ... ALLOW_CONNECTIONS false
		return connecting
	case CodeProtocolViolation:
		return isAwayBehindPooler(answer.Message)
	default:
		return strings.HasPrefix(code, "08")
	}
}

// isAwayBehindPooler is for PgBouncer, which has one code for all that goes wrong. Its texts are not translated. What a server has said is in
// some of them, after "cached error".
func isAwayBehindPooler(message string) bool {
	for _, lasting := range []string{"authentication failed", "does not exist", "pg_hba.conf", "permission denied"} {
		if strings.Contains(message, lasting) {
			return false
		}
	}
	for _, passing := range []string{
		"server_login_retry", "cannot connect to server", "server conn crashed", "server down", "no more connections allowed", "query_wait_timeout",
	} {
		if strings.Contains(message, passing) {
			return true
		}
	}
	return false
}

// isBreak is for a connection that could not be opened, or broke. Alerts of TLS, theirs or ours, and a socket that the user of this process may not
// open, come as errors of the network too, and stay.
func isBreak(leaf error) bool {
	if operation, ok := leaf.(*net.OpError); ok { //nolint:errorlint // each leaf is looked at
		return operation.Op != "remote error" && operation.Op != "local error" && !errors.Is(operation, fs.ErrPermission)
	}
	for _, known := range []error{
		driver.ErrBadConn, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, pgconn.ErrConnClosed, pgconn.ErrReadOnlyConnection, pgconn.ErrStandbyConnection,
	} {
		if errors.Is(leaf, known) {
			return true
		}
	}
	_, network := leaf.(net.Error) //nolint:errorlint // each leaf is looked at
	return network
}

// leaves calls fn for each error of the tree that is not a mere wrapper of others. pgx joins the errors of several servers. What is within an
// error of the network belongs to it.
func leaves(err error, fn func(error)) {
	switch e := err.(type) { //nolint:errorlint // each error of the tree is looked at
	case nil:
	case net.Error:
		fn(err)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			leaves(one, fn)
		}
	case interface{ Unwrap() error }:
		if within := e.Unwrap(); within != nil {
			leaves(within, fn)
			return
		}
		fn(err)
	default:
		fn(err)
	}
}
