package oncebox_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/outboxtest"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/published"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/uow"
)

// PostgreSQL takes any name for a schema, and what each package does with its tables works in all of them.
func TestSchemaOfAnyName(t *testing.T) {
	server := pgtest.Open(t)
	cfg := apptest.Config()
	cfg.DatabaseURL = server.DSN
	cfg.Schema = server.Schema + ` Ünï'; -- "x" $1 $$ %s\`
	cfg.Inbox.Retry.Tries, cfg.Inbox.Retry.Delay, cfg.Inbox.PollInterval = 1, 10*time.Millisecond, 10*time.Millisecond
	db, err := config.OpenDB(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.DB.Exec(`DROP SCHEMA "` + strings.ReplaceAll(cfg.Schema, `"`, `""`) + `" CASCADE`)
		require.NoError(t, errors.Join(err, db.Close()))
	})
	app, err := oncebox.New(db, memory.New(nil), cfg)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, app.Migrate(t.Context()))
	}
	everything(t, app)
}

// everything makes each package use its tables.
func everything(t *testing.T, app *oncebox.App) {
	t.Helper()
	first := func(err error) messaging.HandlerFunc {
		var n atomic.Int32
		return func(context.Context, *messaging.Message) error {
			if n.Add(1) == 1 {
				return err
			}
			return nil
		}
	}
	summary := readmodel.New(app.Inbox, "summary", first(nil))
	app.Consume("order", "summary", summary)
	app.Consume("order", "parks", first(errors.New("not now")))
	app.Consume("order", "gives up", first(messaging.Permanent(errors.New("never"))))
	app.Consume("order", "leased", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		_, err := step.Call(ctx, "pay", func(context.Context, string) (int, error) { return 1, nil })
		return err
	}), inbox.Leased())
	app.ConsumeBatch("order", "batch", func(context.Context, []*messaging.Message) error { return nil })
	apptest.Run(t, app)

	ctx := t.Context()
	var placed uow.Token
	require.NoError(t, app.UoW.Do(ctx, func(_ context.Context, u *uow.Unit) error {
		return u.Add("order", []byte("{}"), event.WithOrderingKey("k"), event.WithDedupKey("once"))
	}, uow.WithToken(&placed)))
	for _, consumer := range []string{"summary", "parks", "leased", "batch"} {
		require.NoError(t, handledBy(t, app, consumer, placed), consumer)
	}
	require.ErrorIs(t, handledBy(t, app, "gives up", placed), inbox.ErrGivenUp)

	t.Run("outbox", func(t *testing.T) { outboxOf(ctx, t, app, summary) })
	t.Run("inbox", func(t *testing.T) { inboxOf(ctx, t, app, placed) })
	t.Run("idempotency", func(t *testing.T) { idempotencyOf(ctx, t, app) })
}

func handledBy(t *testing.T, app *oncebox.App, consumer string, placed uow.Token) error {
	t.Helper()
	handled := make(chan error, 1)
	go func() { handled <- app.Inbox.Await(t.Context(), consumer, placed) }()
	return await.Receive(t, handled, "consumer %s has handled the event", consumer)
}

func outboxOf(ctx context.Context, t *testing.T, app *oncebox.App, summary *readmodel.Model) {
	t.Helper()
	require.NoError(t, summary.Rebuild(ctx, func(context.Context, *uow.Unit) error { return nil }, app.Outbox.Published().History(published.Filter{}), nil))
	outboxtest.Move(t, app.Outbox, "moved", 1)
	require.NoError(t, app.UoW.Do(event.WithTenant(ctx, "moved"), func(_ context.Context, u *uow.Unit) error { return u.Add("order", []byte("{}")) }))
	_, err := app.Outbox.Upkeep().Reconcile(ctx)
	require.NoError(t, err)
	_, err = app.Outbox.State().Disorder(ctx)
	require.NoError(t, err)
	_, err = app.Outbox.State().Stats(ctx)
	require.NoError(t, err)
	require.NoError(t, app.Outbox.Upkeep().EnsurePartitions(ctx))
	require.NoError(t, app.Outbox.Upkeep().DropExpired(ctx))
}

func inboxOf(ctx context.Context, t *testing.T, app *oncebox.App, placed uow.Token) {
	t.Helper()
	by := operator.By{Actor: "test", Reason: "test"}
	n, err := app.Inbox.Dead().ReplayAll(ctx, operator.DeadFilter{}, by, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.NoError(t, app.Inbox.Await(ctx, "gives up", placed))
	_, err = app.Inbox.State().Stats(ctx)
	require.NoError(t, err)
	require.NoError(t, app.Inbox.EnsurePartitions(ctx))
	require.NoError(t, app.Inbox.Clean(ctx))
	require.NoError(t, app.Inbox.Consumers().Pause(ctx, "batch", 0, by))
}

func idempotencyOf(ctx context.Context, t *testing.T, app *oncebox.App) {
	t.Helper()
	keys, scope := app.Idempotency, idempotency.Scope{Tenant: "t", Anonymous: true, Path: "pay", Key: "k"}
	for range 2 {
		require.NoError(t, app.UoW.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			_, err := idempotency.Do(ctx, keys, u.DB(), scope, 1, func(context.Context) (int, error) { return 1, nil })
			return err
		}))
	}
	scope.Key = "leased"
	key, err := keys.Key(scope)
	require.NoError(t, err)
	claim, _, err := keys.Claim(ctx, app.UoW.DB(ctx), key, idempotency.NewFingerprint("f", nil))
	require.NoError(t, err)
	require.NoError(t, claim.Run(ctx, func(ctx context.Context) error {
		_, err := idempotency.StepOnce(ctx, "pay", func(context.Context) (int, error) { return 1, nil })
		return err
	}))
	require.NoError(t, claim.Release(ctx))
	_, err = keys.Purge(ctx, app.UoW.DB(ctx))
	require.NoError(t, err)
}

// A literal is the one place where quotes of the schema's name are not those of an identifier. What doubles them looks for
// literals that begin with it; it would miss others.
func TestSchemaInLiteralsIsAtTheirBeginning(t *testing.T) {
	found := 0
	check := func(path, text string) {
		literal := false
		for i, r := range text {
			switch r {
			case '\'':
				literal = !literal
			case '\n':
				literal = false // constants are put together of parts, and a part may begin within a literal
			}
			if strings.HasPrefix(text[i:], "{schema}") {
				found++
				if literal && text[i-1] != '\'' || !strings.HasPrefix(text[i:], "{schema}.") {
					t.Errorf("%s: %.40q", path, text[i:])
				}
			}
		}
	}
	comment := regexp.MustCompile(`--[^\n]*`)
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || strings.HasSuffix(path, "_test.go") {
			return err
		}
		switch filepath.Ext(path) {
		case ".sql":
			text, err := os.ReadFile(path)
			_, template, _ := strings.Cut(string(text), "oncebox_create($text$") // what is before it has no schema
			check(path, comment.ReplaceAllString(template, ""))
			return err
		case ".go":
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, is := n.(*ast.BasicLit); is && lit.Kind == token.STRING && !strings.HasPrefix(path, "internal/pgsql/") {
					text, _ := strconv.Unquote(lit.Value)
					check(path, comment.ReplaceAllString(text, ""))
				}
				return true
			})
			return err
		}
		return nil
	}))
	require.Greater(t, found, 100)
}

// What a newcomer sees in psql are his own tables: those of oncebox are in the schema that its migration makes.
func TestTablesOfAFirstProgramAreAloneInPublic(t *testing.T) {
	apart := pgtest.OpenApart(t)
	u, err := url.Parse(apart.URL)
	require.NoError(t, err)
	query := u.Query()
	query.Set("search_path", "public") // as with the usual path, whatever the role of the tests is called
	u.RawQuery = query.Encode()
	cfg := apptest.Config()
	cfg.DatabaseURL = u.String()
	db, err := config.OpenDB(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	app, err := oncebox.New(db, memory.New(nil), cfg)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, app.Migrate(t.Context()))
	}
	_, err = db.ExecContext(t.Context(), "CREATE TABLE orders (id text PRIMARY KEY)")
	require.NoError(t, err)
	require.NoError(t, app.UoW.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		if _, err := u.DB().ExecContext(ctx, "INSERT INTO orders VALUES ('o-1')"); err != nil {
			return err
		}
		return u.Add("order", []byte("{}"), event.WithOrderingKey("o-1"))
	}))

	tablesOf := func(schema string) (names []string) {
		require.NoError(t, db.NewRaw(`SELECT relname FROM pg_class WHERE relnamespace = ?::regnamespace AND relkind IN ('r', 'p', 'v', 'S')`, schema).
			Scan(t.Context(), &names))
		return names
	}
	require.Equal(t, []string{"orders"}, tablesOf("public"))
	require.Subset(t, tablesOf("oncebox"), []string{"outbox", "inbox", "idempotency_keys", "oncebox_migrations"})
	var events int
	require.NoError(t, db.NewRaw("SELECT count(*) FROM oncebox.outbox").Scan(t.Context(), &events))
	require.Equal(t, 1, events)
}
