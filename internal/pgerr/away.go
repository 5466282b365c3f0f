package pgerr

import (
	"database/sql/driver"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// IsAway reports whether err says that the database is away, which passes by itself: nobody answers, the connection breaks, the server starts,
// recovers or shuts down, it has no connection left, it accepts no connections for the time being, or none of several servers takes writes yet. It
// is false if one of several servers has given a permanent answer: a wrong password, certificate or database name.
//
// The end of a context looks like a server that does not answer, so the caller checks its own context first.
func IsAway(err error) bool {
	away, other := false, false
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	leaves(err, func(leaf error) {
		switch answer, ok := leaf.(*pgconn.PgError); { //nolint:errorlint // each leaf is looked at
		case ok && isAwayAnswer(answer, connecting), !ok && isBreak(leaf):
			away = true
		case !ok && connecting && leaf.Error() == noTLS: // pgx asks again without TLS, unless that is forbidden
		default:
			other = true
		}
	})
	return away && !other
}

// noTLS is the error of pgx for a server that does not use TLS, or that is still starting.
const noTLS = "server refused TLS connection"

// isAwayAnswer classifies the answer of a server, or of a pooler before it (PostgreSQL, Appendix A).
func isAwayAnswer(answer *pgconn.PgError, connecting bool) bool {
	switch code := answer.Code; code {
	case tooManyConnections, adminShutdown, crashShutdown, cannotConnectNow:
		return true
	case notInState: // ALTER DATABASE ... ALLOW_CONNECTIONS false
		return connecting
	case ProtocolViolation:
		return isAwayBehindPooler(answer.Message)
	default:
		return strings.HasPrefix(code, "08")
	}
}

// isAwayBehindPooler classifies the errors of PgBouncer, which all have one code, by their texts, which are not translated. Some contain the error
// of the server, after "cached error".
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

// isBreak reports whether a connection could not be opened, or broke. It is false for two permanent errors that also look like errors of the
// network: alerts of TLS, of either side, and a socket that the user of this process may not open.
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

// leaves calls fn for each error of the tree that does not merely wrap others. pgx joins the errors of several servers. An error of the network
// counts as a leaf, together with the errors in it.
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
