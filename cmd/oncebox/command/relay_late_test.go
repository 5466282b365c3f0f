package command

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// The relay is a service: it may start before its database, it answers probes meanwhile, and it ends when it is stopped.
func TestRelayStartsBeforeItsDatabase(t *testing.T) {
	t.Setenv("ONCEBOX_PULSAR_URL", "pulsar://127.0.0.1:1")
	db := pgtest.OpenApart(t)
	start := func() (book *logbook.Book, end func()) {
		book = &logbook.Book{}
		ctx, stop := context.WithCancel(t.Context())
		code := make(chan int, 1)
		go func() {
			code <- runPulsar(ctx, &cli.Terminal{Out: io.Discard, Errs: book}, []string{
				"--database-url", db.URL, "--schema", db.Schema, "relay", "--listen", "127.0.0.1:0",
			})
		}()
		await.True(t, func() bool { return book.Count("is waited for") > 0 || len(code) > 0 }, "it waits")
		return book, func() {
			stop()
			require.Equal(t, cli.ExitDone, await.Receive(t, code, "it has ended"), book.String())
		}
	}
	db.Leave(t)
	book, end := start()
	require.Contains(t, book.String(), "the database is away and is waited for")
	status, body := readiness(t, book)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "not ready")
	end()

	book, end = start()
	db.Return(t)
	await.True(t, func() bool { return book.Count("the database has come") > 0 }, "it goes on")
	await.True(t, func() bool { return book.Count("the broker cannot be reached") > 0 }, "the broker is next")
	end()
}

func readiness(t *testing.T, book *logbook.Book) (status int, body string) {
	t.Helper()
	address := regexp.MustCompile(`addr=(\S+)`).FindStringSubmatch(book.String())
	require.NotNil(t, address, book)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address[1]+"/readyz", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

// An operator gets an error at once if the database is away, whatever the service is set to.
func TestCommandsDoNotWaitForTheDatabase(t *testing.T) {
	t.Setenv("ONCEBOX_DATABASE_WAIT", "1h")
	for _, args := range [][]string{{"status"}, {"migrate", "up"}, {"doctor"}, {"stuck"}, {"keys", "list"}} {
		a := command(t, &cli.Terminal{}, append([]string{"--database-url", "postgres://u@127.0.0.1:1/d"}, args...)...)
		require.Equal(t, cli.ExitFailed, a.code, "%v: %s", args, a.errs)
		require.Contains(t, a.errs, "does not answer: start it", args)
	}
}
