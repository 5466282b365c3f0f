package projector_test

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

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

// wire is a proxy before the server. Cut, it takes statements and gives no answers.
type wire struct {
	*toxiproxy.Proxy

	t *testing.T
}

func (f *fixture) wire() *wire {
	f.t.Helper()
	u, err := url.Parse(f.db.DSN)
	require.NoError(f.t, err)
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	w := &wire{Proxy: toxiproxy.NewProxy(server, "postgres", "127.0.0.1:0", u.Host), t: f.t}
	require.NoError(f.t, w.Start())
	f.t.Cleanup(w.Stop)
	return w
}

// loseAnswers closes every connection at the next byte from the server. Requests that arrived before that
// are carried out.
func (w *wire) loseAnswers() {
	_, err := w.Toxics.AddToxicJson(strings.NewReader(
		`{"name":"cut","type":"limit_data","stream":"downstream","attributes":{"bytes":0}}`))
	if err != nil {
		w.t.Error(err)
	}
}

// loseStatements closes every connection at the next byte to the server, which never sees it.
func (w *wire) loseStatements() {
	_, err := w.Toxics.AddToxicJson(strings.NewReader(
		`{"name":"cut","type":"limit_data","stream":"upstream","attributes":{"bytes":0}}`))
	if err != nil {
		w.t.Error(err)
	}
}

// hush lets nothing through from the server any more. The connections stay open.
func (w *wire) hush() {
	if _, err := w.Toxics.AddToxicJson(strings.NewReader(
		`{"name":"hush","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)); err != nil {
		w.t.Error(err)
	}
}

func (w *wire) mend() { w.Toxics.ResetToxics(context.Background()) }
