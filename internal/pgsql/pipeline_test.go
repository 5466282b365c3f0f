package pgsql_test

import (
	"context"
	"database/sql"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// pipelined opens one connection of a Connector, with a transaction that begins with its first statement.
func pipelined(t *testing.T) (*pgtest.DB, *sql.Conn, *sql.Tx) {
	t.Helper()
	db := pgtest.Open(t)
	_, err := db.Exec("CREATE TABLE t (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	require.NoError(t, err)
	cfg, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	pool := sql.OpenDB(pgsql.NewConnector(*cfg))
	t.Cleanup(func() { _ = pool.Close() })
	conn, err := pool.Conn(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	tx, err := conn.BeginTx(pgsql.BeginLater(t.Context(), time.Minute), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return db, conn, tx
}

func send(t *testing.T, conn *sql.Conn, commit bool, texts ...string) (open bool, err error) {
	t.Helper()
	b := &pgsql.Batch{}
	for _, text := range texts {
		b.Queue(text)
	}
	c := bun.Conn{Conn: conn}
	require.True(t, pgsql.CanPipeline(c))
	if commit {
		return pgsql.SendCommit(context.Background(), c, b)
	}
	ok, err := pgsql.SendTogether(context.Background(), c, b)
	require.True(t, ok)
	return false, err
}

func count(t *testing.T, db *pgtest.DB) (n int) {
	t.Helper()
	require.NoError(t, db.NewRaw("SELECT count(*) FROM t").Scan(t.Context(), &n))
	return n
}

func TestSendCommit(t *testing.T) {
	for name, c := range map[string]struct {
		before, last []string
		open         bool
		code         string
		err          error
		want         int
	}{
		"committed":          {[]string{"INSERT INTO t VALUES (1)"}, []string{"INSERT INTO t VALUES (2)"}, false, "", nil, 2},
		"all at once":        {nil, []string{"INSERT INTO t VALUES (2)"}, false, "", nil, 1},
		"statement fails":    {[]string{"INSERT INTO t VALUES (1)"}, []string{"SELECT 1/0"}, true, "22012", nil, 0},
		"cannot be prepared": {nil, []string{"INSERT INTO nowhere VALUES (1)"}, true, "42P01", nil, 0},
		"COMMIT refuses":     {[]string{"INSERT INTO t VALUES (1)"}, []string{"INSERT INTO t VALUES (1)"}, false, "23505", nil, 0},
		"had failed":         {[]string{"INSERT INTO t VALUES (1)", "SELECT 1/0"}, nil, false, "", pgx.ErrTxCommitRollback, 0},
	} {
		t.Run(name, func(t *testing.T) {
			db, conn, tx := pipelined(t)
			for _, text := range c.before {
				_, _ = send(t, conn, false, text)
			}
			open, err := send(t, conn, true, c.last...)
			require.Equal(t, c.open, open, "%v", err)
			require.Equal(t, c.code, pgerr.Code(err))
			if c.code == "" {
				require.ErrorIs(t, err, c.err)
			}
			if c.open {
				require.NoError(t, tx.Rollback())
			} else {
				require.NoError(t, tx.Commit(), "sends nothing any more")
			}
			require.Equal(t, c.want, count(t, db))
			_, err = conn.ExecContext(t.Context(), "INSERT INTO t VALUES (9)")
			require.NoError(t, err, "the connection is as good as before")
			require.Equal(t, c.want+1, count(t, db))
		})
	}
}

// Whatever comes first begins the transaction.
func TestBeginLater(t *testing.T) {
	for name, first := range map[string]func(*sql.Conn, *sql.Tx) error{
		"Exec": func(_ *sql.Conn, tx *sql.Tx) error { _, err := tx.Exec("INSERT INTO t VALUES (1)"); return err },
		"Exec that is prepared": func(_ *sql.Conn, tx *sql.Tx) error {
			result, err := tx.Exec("INSERT INTO t VALUES ($1), ($2)", pgx.QueryExecModeCacheStatement, 1, nil)
			if err == nil {
				n, counted := result.RowsAffected()
				require.NoError(t, counted)
				require.EqualValues(t, 2, n)
				_, err = tx.Exec("DELETE FROM t WHERE n IS NULL")
			}
			return err
		},
		"Query": func(_ *sql.Conn, tx *sql.Tx) error {
			var n int
			return tx.QueryRow("INSERT INTO t VALUES (1) RETURNING n").Scan(&n)
		},
		"Prepare": func(_ *sql.Conn, tx *sql.Tx) error {
			stmt, err := tx.Prepare("INSERT INTO t VALUES ($1)")
			if err == nil {
				_, err = stmt.Exec(1)
			}
			return err
		},
		"Send": func(conn *sql.Conn, _ *sql.Tx) error {
			_, err := send(t, conn, false, "INSERT INTO t VALUES (1)")
			return err
		},
	} {
		for _, commit := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				db, conn, tx := pipelined(t)
				require.NoError(t, first(conn, tx))
				require.Zero(t, count(t, db), "not committed by itself")
				if commit {
					require.NoError(t, tx.Commit())
					require.Equal(t, 1, count(t, db))
				} else {
					require.NoError(t, tx.Rollback())
					require.Zero(t, count(t, db))
				}
			})
		}
	}
}

// A table that was changed has its statements prepared anew, after the one error that says so.
func TestStatementsAreForgotten(t *testing.T) {
	db, conn, tx := pipelined(t)
	_, err := send(t, conn, true, "SELECT * FROM t")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	_, err = db.Exec("ALTER TABLE t ADD COLUMN more text")
	require.NoError(t, err)
	for _, code := range []string{"0A000", ""} {
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		_, err = send(t, conn, false, "SELECT * FROM t")
		require.Equal(t, code, pgerr.Code(err))
		require.Equal(t, code == "", err == nil)
		require.NoError(t, tx.Rollback())
	}
}

func TestSendWithoutATransaction(t *testing.T) {
	_, conn, tx := pipelined(t)
	require.NoError(t, tx.Commit(), "nothing was sent")
	_, err := send(t, conn, false, "SELECT 1")
	require.ErrorIs(t, err, pgerr.ErrEnded)
}

// written counts what a connection writes, packet by packet: a round trip is one.
type written struct {
	net.Conn
	n *atomic.Int64
}

func (w written) Write(b []byte) (int, error) {
	w.n.Add(1)
	return w.Conn.Write(b)
}

func TestFirstStatementSharesTheRoundTripOfBegin(t *testing.T) {
	for _, isolation := range []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted, sql.LevelSerializable} {
		t.Run(isolation.String(), func(t *testing.T) {
			db := pgtest.Open(t)
			_, err := db.Exec("CREATE TABLE t (n int)")
			require.NoError(t, err)
			cfg, err := pgx.ParseConfig(db.DSN)
			require.NoError(t, err)
			cfg.RuntimeParams["default_transaction_isolation"] = "repeatable read"
			var packets atomic.Int64
			cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return written{conn, &packets}, err
			}
			pool := sql.OpenDB(pgsql.NewConnector(*cfg))
			defer pool.Close()
			conn, err := pool.Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close()
			for again := range 2 {
				tx, err := conn.BeginTx(pgsql.BeginLater(t.Context(), time.Minute), &sql.TxOptions{Isolation: isolation})
				require.NoError(t, err)
				packets.Store(0)
				_, err = tx.Exec("INSERT INTO t VALUES ($1)", pgx.QueryExecModeCacheStatement, 1)
				require.NoError(t, err)
				if again == 1 {
					require.EqualValues(t, 1, packets.Load())
				}
				var level string
				require.NoError(t, tx.QueryRow("SELECT current_setting('transaction_isolation')").Scan(&level))
				require.Equal(t, map[sql.IsolationLevel]string{
					sql.LevelDefault: "repeatable read", sql.LevelReadCommitted: "read committed", sql.LevelSerializable: "serializable",
				}[isolation], level)
				require.NoError(t, tx.Commit())
			}
		})
	}
}

// The statement that fails first fails the transaction, and the connection goes on.
func TestFirstStatementFails(t *testing.T) {
	db, conn, tx := pipelined(t)
	_, err := tx.Exec("INSERT INTO t VALUES ($1)", pgx.QueryExecModeCacheStatement, "no number")
	require.Error(t, err)
	_ = tx.Rollback()
	_, err = conn.ExecContext(t.Context(), "INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	require.Equal(t, 1, count(t, db))
}

// onlyConn opens a pool with one connection.
func onlyConn(t *testing.T) (*pgtest.DB, *sql.DB) {
	t.Helper()
	db := pgtest.Open(t)
	_, err := db.Exec("CREATE TABLE t (n int)")
	require.NoError(t, err)
	cfg, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	pool := sql.OpenDB(pgsql.NewConnector(*cfg))
	t.Cleanup(func() { _ = pool.Close() })
	pool.SetMaxOpenConns(1)
	return db, pool
}

// A statement that was prepared on the pool before is one of the transaction, also if it comes first.
func TestPreparedStatementBeginsTheTransaction(t *testing.T) {
	db, pool := onlyConn(t)
	prepared, err := pool.Prepare("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	defer prepared.Close()
	for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
		tx, err := pool.BeginTx(pgsql.BeginLater(t.Context(), time.Minute), nil)
		require.NoError(t, err)
		_, err = tx.Stmt(prepared).Exec()
		require.NoError(t, err)
		require.Zero(t, count(t, db), "not committed by itself")
		require.NoError(t, end(tx))
	}
	require.Equal(t, 1, count(t, db))
}

// A transaction that could not begin leaves nothing that the next statement would begin.
func TestTransactionThatCannotBegin(t *testing.T) {
	db, pool := onlyConn(t)
	_, err := pool.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelLinearizable})
	require.ErrorContains(t, err, "isolation")
	_, err = pool.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	require.Equal(t, 1, count(t, db), "committed by itself")
}
