package pgtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Dump is the content of a schema at one moment: all rows, also of unlogged tables, and the state of its sequences, as
// pg_dump --data-only writes it.
type Dump struct {
	tables    map[string][]byte // rows in the format of COPY
	sequences []string          // statements that set the sequences
}

// TakeDump dumps the schema of db.
func TakeDump(t testing.TB, db *DB) *Dump {
	t.Helper()
	const of = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND "
	d := &Dump{tables: map[string][]byte{}}
	onConn(t, db, func(ctx context.Context, conn *pgx.Conn) {
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Commit(ctx)) }()
		for _, table := range names(ctx, t, tx, of+"relkind IN ('r', 'p') AND NOT relispartition") {
			var rows bytes.Buffer
			_, err := conn.PgConn().CopyTo(ctx, &rows, "COPY (SELECT * FROM "+table+") TO STDOUT")
			require.NoError(t, err)
			d.tables[table] = rows.Bytes()
		}
		for _, name := range names(ctx, t, tx, of+"relkind = 'S'") {
			var last int64
			var called bool
			require.NoError(t, tx.QueryRow(ctx, "SELECT last_value, is_called FROM "+name).Scan(&last, &called))
			d.sequences = append(d.sequences, fmt.Sprintf("SELECT setval('%s', %d, %t)", name, last, called))
		}
	})
	return d
}

// Restore replaces all rows of db by the dump and runs further statements, in one transaction.
func (d *Dump) Restore(t testing.TB, db *DB, further ...string) {
	t.Helper()
	var tables []string
	for table := range d.tables {
		tables = append(tables, table)
	}
	onConn(t, db, func(ctx context.Context, conn *pgx.Conn) {
		require.NoError(t, despiteDeadlocks(ctx, func() error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "TRUNCATE "+strings.Join(tables, ", ")); err != nil {
					return err
				}
				for table, rows := range d.tables {
					if _, err := conn.PgConn().CopyFrom(ctx, bytes.NewReader(rows), "COPY "+table+" FROM STDIN"); err != nil {
						return fmt.Errorf("%s: %w", table, err)
					}
				}
				// All at the end, because a sequence changes at once and not with the commit.
				_, err := conn.PgConn().Exec(ctx, strings.Join(append(d.sequences, further...), ";")).ReadAll()
				return err
			})
		}))
	})
}

func names(ctx context.Context, t testing.TB, tx pgx.Tx, query string) []string {
	t.Helper()
	rows, err := tx.Query(ctx, query)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return list
}

func onConn(t testing.TB, db *DB, fn func(ctx context.Context, conn *pgx.Conn)) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	fn(t.Context(), conn)
}

// Copy makes a copy of the database (CREATE DATABASE ... TEMPLATE). It ends the sessions of the original for that.
func (a *Apart) Copy(t testing.TB) *Apart {
	t.Helper()
	a.Leave(t)
	c := a.beside(t, " TEMPLATE "+a.Database)
	a.Return(t)
	return c
}

// Beside makes an empty database with oncebox's tables in a schema of the same name.
func (a *Apart) Beside(t testing.TB) *Apart {
	t.Helper()
	c := a.beside(t, "")
	_, err := c.ExecContext(t.Context(), "CREATE SCHEMA "+c.Schema)
	require.NoError(t, err)
	c.migrate(t)
	return c
}

func (a *Apart) beside(t testing.TB, how string) *Apart {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text()[:16])
	onServer(t, "CREATE DATABASE "+name+how)
	t.Cleanup(func() { onServer(t, "DROP DATABASE "+name+" WITH (FORCE)") })
	c := &Apart{Database: name, URL: at(t, a.URL, name)}
	c.DB = &DB{Schema: a.Schema, DSN: at(t, a.DSN, name)}
	c.DB.DB = c.Another(t)
	return c
}

func at(t testing.TB, dsn, database string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.Path = "/" + database
	return u.String()
}

// Swap exchanges the names of the two databases. It ends all their sessions.
func (a *Apart) Swap(t testing.TB, other *Apart) {
	t.Helper()
	spare := "test_" + strings.ToLower(rand.Text()[:16])
	for _, d := range []*Apart{a, other} {
		d.Leave(t)
	}
	for _, names := range [][2]string{{a.Database, spare}, {other.Database, a.Database}, {spare, other.Database}} {
		onServer(t, "ALTER DATABASE "+names[0]+" RENAME TO "+names[1])
	}
	for _, d := range []*Apart{a, other} {
		d.Return(t)
	}
}
