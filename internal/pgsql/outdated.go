package pgsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/uptrace/bun"
)

const (
	codeFeatureNotSupported = "0A000"
	codeInternal            = "XX000"
)

// IsOutdated reports whether a statement failed because it was prepared too long ago: its result columns have changed since, by ALTER TABLE for
// example, the server has forgotten it, or an object that it uses was replaced. It was not executed, and would not fail if it were prepared now.
//
// Messages are translated, names of the server's functions are not, and neither are messages of internal errors.
func IsOutdated(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch answer.Code {
	case CodeInvalidStatementName:
		return true
	case codeFeatureNotSupported:
		return answer.Routine == "RevalidateCachedQuery" // cached plan must not change result type
	case CodeProtocolViolation:
		return answer.Routine == "PortalSetResultFormat" // described when it had fewer columns
	case codeInternal:
		return strings.HasPrefix(answer.Message, "cache lookup failed for ") || strings.HasPrefix(answer.Message, "could not open relation with OID ")
	default:
		return false
	}
}

// refresh drops the prepared statements of the connection.
func (c *conn) refresh(ctx context.Context) error {
	clear(c.prepared)
	return c.Conn().DeallocateAll(ctx)
}

const freshKey = "github.com/oncebox/oncebox/internal/pgsql.Fresh"

// Fresh makes sure, outside of a transaction, that no prepared statement of a connection is older than since, a number that grows. A connection
// that this module did not open may have statements that its owner prepared by name: it is closed, ok is false, and the caller takes another
// connection.
func Fresh(ctx context.Context, c bun.Conn, since int64) (ok bool) {
	_ = c.Raw(func(driverConn any) error {
		beneath, is := driverConn.(native)
		if !is || beneath.Conn().IsClosed() {
			ok = true // it shows at BEGIN
			return nil
		}
		data := beneath.Conn().PgConn().CustomData()
		last, known := data[freshKey].(int64)
		_, used := data[sessionKey]
		data[freshKey] = since
		switch ours, is := driverConn.(*conn); {
		case last == since && known, !used && !is:
			ok = true
		case is:
			ok = ours.refresh(ctx) == nil
		}
		if !ok {
			return driver.ErrBadConn // it is closed
		}
		return nil
	})
	return ok
}
