package oncebox_test

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/uow"
)

// tenants is a database with the tables of the service in one schema, and tables of the same names in the schema of a tenant.
type tenants struct {
	*pgtest.DB

	t      *testing.T
	tenant string
	tables []string // and views
	names  []string // of our tables, views, sequences and functions
}

func newTenants(t *testing.T) *tenants {
	t.Helper()
	s := &tenants{DB: pgtest.Migrated(t), t: t}
	s.tenant = s.Schema + "_tenant"
	require.NoError(t, migrations.Up(t.Context(), s.DB.DB, &migrations.Config{Schema: s.tenant, Logger: apptest.Config().Telemetry.Logger}))
	t.Cleanup(func() {
		_, err := s.DB.Exec("DROP SCHEMA " + s.tenant + " CASCADE")
		require.NoError(t, err)
	})
	require.NoError(t, s.NewRaw(`SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v')`).
		Scan(t.Context(), &s.tables))
	require.NoError(t, s.NewRaw(`SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'S')
		UNION SELECT proname FROM pg_proc WHERE pronamespace = current_schema()::regnamespace`).Scan(t.Context(), &s.names))
	return s
}

// pool opens a pool whose sessions are all prepared with a script.
func (s *tenants) pool(script string, tracer pgx.QueryTracer) *bun.DB {
	s.t.Helper()
	cfg, err := pgx.ParseConfig(s.DSN)
	require.NoError(s.t, err)
	cfg.Tracer = tracer
	cfg.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		return conn.Exec(ctx, script).Close()
	}
	pool := sql.OpenDB(pgsql.NewConnector(*cfg))
	pool.SetMaxOpenConns(20)
	s.t.Cleanup(func() { _ = pool.Close() })
	return bun.NewDB(pool, pgdialect.New())
}

// requireUntouched looks whether anything was written into the tenant's tables.
func (s *tenants) requireUntouched() {
	s.t.Helper()
	for _, table := range []string{"outbox", "outbox_tenant", "outbox_held", "outbox_progress", "outbox_dedup", "inbox", "inbox_consumer", "inbox_parked",
		"inbox_dead", "idempotency_keys", "idempotency_step", "oncebox_lease"} {
		var n int
		require.NoError(s.t, s.NewRaw("SELECT count(*) FROM "+s.tenant+"."+table).Scan(s.t.Context(), &n))
		require.Zero(s.t, n, table)
	}
}

// Whatever a session says about names, oncebox finds its own tables: those where the connections begin.
func TestSessionsWithOtherTablesOfOurNames(t *testing.T) {
	for name, script := range map[string]func(*tenants) string{
		"search_path": func(s *tenants) string { return "SET search_path = " + s.tenant },
		"temporary tables": func(s *tenants) string {
			return "CREATE TEMPORARY TABLE " + strings.Join(s.tables, " (x int); CREATE TEMPORARY TABLE ") + " (x int)"
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTenants(t)
			cfg := apptest.Config()
			cfg.Inbox.Retry.Tries, cfg.Inbox.Retry.Delay, cfg.Inbox.PollInterval = 1, 10*time.Millisecond, 10*time.Millisecond
			texts := &statements{}
			app, err := oncebox.New(s.pool(script(s), texts), memory.New(nil), cfg)
			require.NoError(t, err)
			require.NoError(t, app.Migrate(t.Context()), "they are there")
			everything(t, app)
			serve(t, app, "k", nil)
			s.requireUntouched()
			require.Greater(t, texts.count(), 50)
			require.Empty(t, texts.bare(s.names))
		})
	}
}

// A service has a schema for each of its tenants, says so in each transaction, and has tables of our names in them by mistake.
func TestServiceWithASchemaForEachTenant(t *testing.T) {
	s := newTenants(t)
	cfg := apptest.Config()
	cfg.DatabaseURL = s.DSN
	pool, err := config.OpenDB(t.Context(), cfg)
	require.NoError(t, err)
	defer pool.Close()
	broker := memory.New(nil)
	app, err := oncebox.New(pool, broker, cfg)
	require.NoError(t, err)
	_, err = s.Exec("CREATE TABLE " + s.tenant + ".handled (id text)")
	require.NoError(t, err)
	enter := func(db bun.IDB) error {
		_, err := db.NewRaw("SET LOCAL search_path = ?", bun.Ident(s.tenant)).Exec(t.Context())
		return err
	}
	app.Consume("order", "audit", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if err := enter(app.UoW.DB(ctx)); err != nil {
			return err
		}
		_, err := app.UoW.DB(ctx).NewRaw("INSERT INTO handled VALUES (?)", m.ID).Exec(ctx)
		return err
	}))
	const each = 20
	for range each { // before anything of ours has looked at the database
		require.NoError(t, app.UoW.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
			if err := enter(u.DB()); err != nil {
				return err
			}
			return u.Add("order", []byte("{}"), event.WithType("placed"), event.WithOrderingKey("k"))
		}))
	}
	apptest.Run(t, app)
	for n := range each {
		key := "order-" + string(rune('a'+n))
		serve(t, app, key, enter)
		serve(t, app, key, enter) // is answered from the table
	}
	await.True(t, func() bool {
		var n int
		require.NoError(t, s.NewRaw("SELECT count(*) FROM "+s.tenant+".handled").Scan(t.Context(), &n))
		return n == 2*each
	}, "all events are handled")
	require.Len(t, broker.Messages("order"), 2*each)
	s.requireUntouched()
}

// serve sends a request with a key to a handler that records an event.
func serve(t *testing.T, app *oncebox.App, key string, enter func(bun.IDB) error) {
	t.Helper()
	anyone := func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous(""), nil }
	handler := httpmw.Idempotency(app.UoW, app.Idempotency, anyone, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u := uow.MustFromContext(r.Context())
		if enter != nil && enter(u.DB()) != nil || u.Add("order", []byte("{}"), event.WithType("placed"), event.WithOrderingKey("k")) != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", key)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	require.Equal(t, http.StatusCreated, w.Code, w.Body.String())
}

// statements are the texts that were sent.
type statements struct {
	mu    sync.Mutex
	texts map[string]bool
}

// TraceQueryStart notes the text.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	s.note(d.SQL)
	return ctx
}

// TraceQueryEnd is part of the interface.
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TracePrepareStart notes the text: what leaves in a batch is prepared.
func (s *statements) TracePrepareStart(ctx context.Context, _ *pgx.Conn, d pgx.TracePrepareStartData) context.Context {
	s.note(d.SQL)
	return ctx
}

// TracePrepareEnd is part of the interface.
func (*statements) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

func (s *statements) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = map[string]bool{}
	}
	s.texts[text] = true
}

func (s *statements) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.texts)
}

// bare returns the statements that name one of our tables without its schema, and nothing else where a table can stand.
func (s *statements) bare(names []string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := `(?:` + strings.Join(names, "|") + `)`
	place := regexp.MustCompile(`(?i)\b(?:FROM|JOIN|INTO|UPDATE|TABLE|ONLY|USING)\s+"?` + name + `\b|` +
		`\('` + name + `'|'` + name + `'::reg|(?:^|[^.\w"])` + name + `\(`)
	for text := range s.texts {
		if at := place.FindString(text); at != "" {
			found = append(found, at+": "+text)
		}
	}
	slices.Sort(found)
	return found
}
