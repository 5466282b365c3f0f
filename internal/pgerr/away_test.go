package pgerr_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgerr"
)

func TestIsAway(t *testing.T) {
	t.Parallel()
	answer := func(code, message string) error { return &pgconn.PgError{Code: code, Message: message} }
	dial := func(err error) error { return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)} }
	for name, err := range map[string]error{
		"it recovers":               answer("57P03", ""),
		"it shuts down":             answer("57P01", ""),
		"it crashed":                fmt.Errorf("ask: %w", answer("57P02", "")),
		"no connection is left":     answer("53300", ""),
		"a connection failure":      answer("08006", ""),
		"nobody listens":            dial(syscall.ECONNREFUSED),
		"no such socket":            dial(syscall.ENOENT),
		"an unknown host":           &net.DNSError{Err: "no such host", IsNotFound: true},
		"it hung up":                fmt.Errorf("receive: %w", io.ErrUnexpectedEOF),
		"a broken connection":       driver.ErrBadConn,
		"no answer":                 context.DeadlineExceeded,
		"a standby, to be promoted": pgconn.ErrReadOnlyConnection,
		"two servers are away":      errors.Join(dial(syscall.ECONNREFUSED), answer("57P03", "")),
		"PgBouncer has no server":   answer("08P01", "pgbouncer cannot connect to server"),
		"PgBouncer waits":           answer("08P01", "server login has been failing, cached error: connect failed (server_login_retry)"),
		"PgBouncer hears that it starts": answer("08P01", "server login has been failing, cached error: "+
			"the database system is starting up (server_login_retry)"),
		"PgBouncer is full": answer("08P01", "no more connections allowed (max_client_conn)"),
	} {
		require.True(t, pgerr.IsAway(err), name)
	}
	for name, err := range map[string]error{
		"nothing":                        nil,
		"anything":                       errors.New("no"),
		"a wrong password":               answer("28P01", ""),
		"a wrong host's certificate":     errors.Join(dial(syscall.ECONNREFUSED), errors.New("x509: certificate signed by unknown authority")),
		"their alert":                    &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")},
		"our alert":                      &net.OpError{Op: "local error", Err: errors.New("tls: bad record MAC")},
		"a socket of somebody else":      dial(syscall.EACCES),
		"no such database":               answer("3D000", ""),
		"a table is missing":             answer("42P01", ""),
		"one is away, one refuses":       errors.Join(dial(syscall.ECONNREFUSED), answer("28P01", "")),
		"a statement in the wrong state": answer("55000", ""),
		"a parameter of the session":     answer("08P01", "unsupported startup parameter: search_path"),
		"PgBouncer's password is wrong": answer("08P01", "server login has been failing, cached error: "+
			`password authentication failed for user "u" (server_login_retry)`),
		"told to stop":     context.Canceled,
		"the disk is full": answer("53100", ""),
	} {
		require.False(t, pgerr.IsAway(err), name)
	}
}
