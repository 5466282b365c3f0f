package pgsql

import (
	"context"
	"database/sql/driver"

	"github.com/uptrace/bun"
)

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
