package config_test

import (
	"context"
	"crypto/tls"
	"database/sql"
	"net"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/telemetry"
)

// openers are the ways to a database.
func openers(t *testing.T) map[string]func(context.Context, config.Config) (*bun.DB, error) {
	t.Helper()
	return map[string]func(context.Context, config.Config) (*bun.DB, error){
		"OpenDB": config.OpenDB,
		"UseDB": func(ctx context.Context, cfg config.Config) (*bun.DB, error) {
			pool, err := sql.Open("pgx", cfg.DatabaseURL)
			require.NoError(t, err)
			t.Cleanup(func() { _ = pool.Close() })
			return config.UseDB(ctx, pool, cfg)
		},
		"UsePool": func(ctx context.Context, cfg config.Config) (*bun.DB, error) {
			pool, err := pgxpool.New(t.Context(), cfg.DatabaseURL)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			return config.UsePool(ctx, pool, cfg)
		},
	}
}

// requireWait opens a database that is away, in each way, lets it come, and requires that each way has
// waited and has logged that.
func requireWait(t *testing.T, url, why string, comes func()) {
	t.Helper()
	logs, opened := map[string]*logbook.Book{}, make(chan error, 3)
	for name, open := range openers(t) {
		book := &logbook.Book{}
		logs[name] = book
		go func() {
			db, err := open(t.Context(), config.Config{DatabaseURL: url, Telemetry: telemetry.Config{Logger: book.Logger()}})
			if err == nil {
				err = db.Close()
			}
			opened <- err
		}()
	}
	for name, book := range logs {
		await.True(t, func() bool { return book.Count("the database is away and is waited for") > 0 }, "%s says that it waits", name)
		require.Contains(t, book.String(), why, name)
	}
	require.Empty(t, opened, "nobody gave up")
	comes()
	for name := range logs {
		require.NoError(t, await.Receive(t, opened, "the database is open"), name)
	}
	for name, book := range logs {
		require.Equal(t, 1, book.Count("the database is away"), name)
		require.Equal(t, 1, book.Count("the database has come"), name)
	}
}

func TestServerThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, nil)
	t.Run("it recovers", func(t *testing.T) {
		requireWait(t, server.URL, "SQLSTATE 57P03", server.Recover(t))
	})
	t.Run("nobody answers", func(t *testing.T) {
		requireWait(t, server.URL, "connection refused", server.Vanish(t))
	})
}

// limited is a role of a test's own.
func limited(t *testing.T, db *pgtest.DB, how string) (role string, u *url.URL) {
	t.Helper()
	role = db.Schema + "_limited"
	_, err := db.Exec("CREATE ROLE " + role + " LOGIN PASSWORD 'x' " + how)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = db.Exec("DROP ROLE " + role) })
	u, err = url.Parse(pgtest.URL(t))
	require.NoError(t, err)
	u.User = url.UserPassword(role, "x")
	return role, u
}

func TestServerThatTakesNobodyIsWaitedFor(t *testing.T) {
	t.Parallel()
	db := pgtest.Open(t)
	alter := func(t *testing.T, statement string) {
		t.Helper()
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	t.Run("it has no connection left", func(t *testing.T) {
		role, u := limited(t, db, "CONNECTION LIMIT 0")
		requireWait(t, u.String(), "SQLSTATE 53300", func() { alter(t, "ALTER ROLE "+role+" CONNECTION LIMIT -1") })
	})
	t.Run("it takes no writes yet", func(t *testing.T) { // as a standby that is about to be promoted
		role, u := limited(t, db, "")
		alter(t, "ALTER ROLE "+role+" SET default_transaction_read_only = on")
		u.RawQuery = "target_session_attrs=read-write&" + u.RawQuery
		requireWait(t, u.String(), "read only connection", func() { alter(t, "ALTER ROLE "+role+" RESET default_transaction_read_only") })
	})
	t.Run("it is closed for a while", func(t *testing.T) {
		apart := pgtest.OpenApart(t)
		apart.Leave(t)
		requireWait(t, apart.URL, "SQLSTATE 55000", func() { apart.Return(t) })
	})
}

// The end of the context ends the wait at once, and the error says what was waited for.
func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for url, why := range map[string]string{
		"postgres://u:secret@127.0.0.1:1/d":             "connection refused",
		"postgres://u:secret@oncebox.invalid/d":         "oncebox.invalid",
		"host=/nowhere user=u password=secret dbname=d": "no such file or directory",
	} {
		for name, open := range openers(t) {
			var book logbook.Book
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := open(ctx, config.Config{DatabaseURL: url, Telemetry: telemetry.Config{Logger: book.Logger()}})
				done <- err
			}()
			await.True(t, func() bool { return book.Count("is waited for") > 0 }, "%s waits", name)
			stop()
			err := await.Receive(t, done, "the wait has ended")
			require.ErrorIs(t, err, context.Canceled, name)
			require.ErrorContains(t, err, why, name)
			require.NotContains(t, err.Error()+book.String(), "secret")
		}
	}
}

func TestWaitHasALimit(t *testing.T) {
	t.Parallel()
	for name, open := range openers(t) {
		for limit, want := range map[time.Duration]string{time.Millisecond: "ONCEBOX_DATABASE_WAIT", -1: "connection refused"} {
			var book logbook.Book
			_, err := open(t.Context(), config.Config{DatabaseURL: "postgres://u@127.0.0.1:1/d", DatabaseWait: limit,
				Telemetry: telemetry.Config{Logger: book.Logger()}})
			require.ErrorContains(t, err, "connection refused", name)
			require.ErrorContains(t, err, want, name)
			if limit < 0 {
				require.Empty(t, book.String(), name)
			}
		}
	}
	require.ErrorContains(t, (&config.Config{DatabaseWait: -2}).Validate(), "Config.DatabaseWait is -2ns: give 1ms or more, or -1")
}

// An error that waiting does not mend is returned at once, even if another one of several servers is away.
func TestWhatStaysIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	at := func(change func(*url.URL)) string {
		u, err := url.Parse(pgtest.URL(t))
		require.NoError(t, err)
		change(u)
		return u.String()
	}
	foreign := httptest.NewUnstartedServer(nil)
	foreign.StartTLS()
	t.Cleanup(foreign.Close)
	password := func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "wrong") }
	for want, dsn := range map[string]string{
		"SQLSTATE 28P01":     at(password),
		"password authentic": at(func(u *url.URL) { password(u); u.Host = "127.0.0.1:1," + u.Host }),
		"SQLSTATE 3D000":     at(func(u *url.URL) { u.Path = "/oncebox_none" }),
		"refused TLS":        at(func(u *url.URL) { u.RawQuery = "sslmode=require" }),
		"certificate":        "postgres://u@" + upgraded(t, foreign.TLS) + "/d?sslmode=verify-full",
	} {
		for name, open := range openers(t) {
			var book logbook.Book
			_, err := open(t.Context(), config.Config{DatabaseURL: dsn, Telemetry: telemetry.Config{Logger: book.Logger()}})
			require.ErrorContains(t, err, want, name)
			require.Empty(t, book.String(), name)
		}
	}
}

// upgraded listens as a PostgreSQL with a certificate that nobody has signed.
func upgraded(t *testing.T, cfg *tls.Config) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 8)) // SSLRequest
			_, _ = conn.Write([]byte("S"))
			_ = tls.Server(conn, cfg).Handshake()
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}
