package pgsql

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

// IsOutage reports whether err is about the state of the server, by which all that use it fail alike: it is away, does not answer, ends its sessions,
// takes no writes, or has no room left (classes 08, 53 and 57P of PostgreSQL's error codes, and 25006). It is for the log. What breaks while it is
// read from or written to may be another connection than the database's; a URL that was asked for is one for certain.
func IsOutage(err error) bool {
	if code := Code(err); code != "" {
		return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "53") || strings.HasPrefix(code, "57P") || code == codeReadOnly
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
