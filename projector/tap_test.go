package projector_test

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/outbox"
)

// tap shows a test the statements of a pool before they are sent. prepared says that the connection has run the statement
// before: what is sent next is the statement itself. ended, if there is one, comes after the answer. The schema is left out of the statements.
type tap struct {
	on    func(statement string, prepared bool)
	sent  func(statement string, args []any)
	ended func(statement string)

	mu   sync.Mutex
	seen map[*pgx.Conn]map[string]bool
}

// schemas matches the schemas of tests, as they stand before a name.
var schemas = regexp.MustCompile(`"test_[a-z0-9]+"\.`)

func (t *tap) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(data.SQL, "EXPLAIN ") { // of the rehearsal: it has the texts of all others, and runs none
		return ctx
	}
	data.SQL = schemas.ReplaceAllString(data.SQL, "")
	t.mu.Lock()
	if t.seen == nil {
		t.seen = map[*pgx.Conn]map[string]bool{}
	}
	if t.seen[conn] == nil {
		t.seen[conn] = map[string]bool{}
	}
	prepared := t.seen[conn][data.SQL]
	t.seen[conn][data.SQL] = true
	t.mu.Unlock()
	if t.sent != nil {
		t.sent(data.SQL, data.Args)
	}
	if t.on != nil {
		// A driver that panics keeps the pool from ever closing the connection.
		defer func() {
			if p := recover(); p != nil {
				_ = conn.PgConn().Conn().Close()
				panic(p)
			}
		}()
		t.on(data.SQL, prepared)
	}
	return context.WithValue(ctx, t, data.SQL)
}

func (t *tap) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if statement, seen := ctx.Value(t).(string); seen && t.ended != nil {
		t.ended(statement)
	}
}

// through returns a store of the same tables, whose pool is tapped and has other parameters or another address.
func (f *fixture) through(on func(statement string, prepared bool), change func(u *url.URL)) *outbox.Store {
	f.t.Helper()
	return f.tapped(&tap{on: on}, change)
}

func (f *fixture) tapped(t *tap, change func(u *url.URL)) *outbox.Store {
	f.t.Helper()
	return outbox.NewStore(f.pool(t, change), &outbox.Config{Source: "test"})
}

func (f *fixture) pool(t *tap, change func(u *url.URL)) *bun.DB {
	f.t.Helper()
	u, err := url.Parse(f.db.DSN)
	require.NoError(f.t, err)
	if change != nil {
		change(u)
	}
	cfg, err := pgx.ParseConfig(u.String())
	require.NoError(f.t, err)
	cfg.Tracer = t
	pool := stdlib.OpenDB(*cfg)
	pool.SetMaxOpenConns(10)
	f.t.Cleanup(func() { _ = pool.Close() })
	return bun.NewDB(pool, pgdialect.New())
}

// wire returns a link before the server.
func (f *fixture) wire() *linktest.Link {
	f.t.Helper()
	return linktest.New(f.t, f.db.DSN)
}
