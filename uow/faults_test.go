package uow_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// faults is a driver that lies: it wraps the real one and does something else where the test says so.
type faults struct {
	driver.Connector

	// commit is called instead of COMMIT.
	commit func(c *faultyConn, commit func() error) error
	// call is called around everything that goes to the server, with the kind of call.
	call func(what string, run func() error) error
	// forgetful is a server that does not remember any transaction.
	forgetful bool
	// timeline is on which the server says to be, "" for the truth.
	timeline string
	// detached transactions are not cancelled with their context.
	detached bool
	// watched connections know that nobody has ended a transaction.
	watched bool
	// down refuses a new connection, and lets those after it wait until they are given up.
	down    atomic.Bool
	refused atomic.Bool

	probes, questions atomic.Int64
	background        sync.WaitGroup
}

var errDown = errors.New("the database is down")

// broken opens a pool to the schema of s whose driver has faults. There is nothing else that uses it.
func (s *service) broken(t *testing.T, f *faults) *bun.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(s.DSN)
	require.NoError(t, err)
	f.Connector = stdlib.GetConnector(*cfg)
	pool := sql.OpenDB(f)
	t.Cleanup(func() {
		_ = pool.Close()
		f.background.Wait()
	})
	return bun.NewDB(pool, pgdialect.New())
}

func (f *faults) around(what string, run func() error) error {
	if f.call != nil {
		return f.call(what, run)
	}
	return run()
}

func (f *faults) Connect(ctx context.Context) (driver.Conn, error) {
	if f.down.Load() {
		if !f.refused.Swap(true) {
			return nil, errDown
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c, err := f.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	faulty := &faultyConn{beneath: c.(*stdlib.Conn), f: f}
	if f.watched {
		return watchedFaultyConn{faulty}, nil
	}
	return faulty, nil
}

type watchedFaultyConn struct{ *faultyConn }

func (watchedFaultyConn) EndedTx() string { return "" }

// beneath has another name than Conn, or the field would hide the method.
type beneath = stdlib.Conn

type faultyConn struct {
	*beneath

	f *faults
	// busy: something goes on in the background on this connection, which nobody else may have.
	busy atomic.Bool
}

func (c *faultyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (tx driver.Tx, err error) {
	if c.f.detached {
		ctx = context.WithoutCancel(ctx)
	}
	err = c.f.around("BEGIN", func() error {
		tx, err = c.beneath.BeginTx(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &faultyTx{tx, c}, nil
}

func (c *faultyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (res driver.Result, err error) {
	err = c.f.around(query, func() error {
		res, err = c.beneath.ExecContext(ctx, query, args)
		return err
	})
	return res, err
}

func (c *faultyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	if strings.Contains(query, "pg_current_xact_id_if_assigned") {
		c.f.probes.Add(1)
	}
	if strings.Contains(query, "pg_xact_status") {
		c.f.questions.Add(1)
		if c.f.forgetful {
			query = strings.Replace(query, "pg_xact_status($1::text::xid8)", "CASE WHEN $1::text = '' THEN '' END", 1)
		}
		if c.f.timeline != "" {
			query = strings.Replace(query, pgsql.Timeline, "'"+c.f.timeline+"'", 1)
		}
	}
	err = c.f.around(query, func() error {
		rows, err = c.beneath.QueryContext(ctx, query, args)
		return err
	})
	return rows, err
}

func (c *faultyConn) ResetSession(ctx context.Context) error {
	if c.busy.Load() {
		return driver.ErrBadConn
	}
	return c.beneath.ResetSession(ctx)
}

func (c *faultyConn) Close() error {
	if c.busy.Load() {
		return nil // the statement that is under way closes it
	}
	return c.beneath.Close()
}

type faultyTx struct {
	driver.Tx

	c *faultyConn
}

func (tx *faultyTx) Commit() error {
	commit := tx.Tx.Commit
	return tx.c.f.around("COMMIT", func() error {
		if tx.c.f.commit != nil {
			return tx.c.f.commit(tx.c, commit)
		}
		return commit()
	})
}

func (tx *faultyTx) Rollback() error { return tx.c.f.around("ROLLBACK", tx.Tx.Rollback) }
