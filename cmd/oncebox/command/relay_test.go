package command

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/telemetry"
)

// A service in another language adds events in SQL, and the relay publishes them.
func TestRelayPublishesWhatSQLAdds(t *testing.T) {
	db, n := pgtest.Migrated(t), pulsartest.Open(t)
	tenant, namespace, _ := strings.Cut(n.Name, "/")
	for name, value := range map[string]string{
		"ONCEBOX_PULSAR_URL": n.URL, "ONCEBOX_PULSAR_ADMIN_URL": n.AdminURL, "ONCEBOX_PULSAR_TENANT": tenant, "ONCEBOX_PULSAR_NAMESPACE": namespace,
	} {
		t.Setenv(name, value)
	}
	broker, err := pulsar.Connect(t.Context(), &pulsar.Config{
		URL: n.URL, AdminURL: n.AdminURL, Tenant: tenant, Namespace: namespace, Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	receiver, err := broker.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "billing"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, receiver.Close()) })

	ctx, stop := context.WithCancel(t.Context())
	var book logbook.Book
	code := make(chan int, 1)
	go func() {
		code <- runPulsar(ctx, &cli.Terminal{Out: io.Discard, Errs: &book}, []string{
			"--database-url", pgtest.URL(t), "--schema", db.Schema, "relay", "--listen", "127.0.0.1:0",
		})
	}()
	t.Cleanup(func() { stop(); <-code })
	listening := regexp.MustCompile(`addr=(\S+)`)
	await.True(t, func() bool { return listening.MatchString(book.String()) || len(code) > 0 }, "it listens")
	require.Regexp(t, listening, book.String())
	get := func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listening.FindStringSubmatch(book.String())[1]+path, nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	status, _ := get("/healthz")
	require.Equal(t, http.StatusOK, status)
	await.True(t, func() bool { status, _ := get("/readyz"); return status == http.StatusOK }, "it is ready")

	_, err = db.ExecContext(t.Context(), `SELECT oncebox_add('order', '{"total": 42}', 'order.placed', source => 'shop')`)
	require.NoError(t, err)
	m, err := receiver.Receive(t.Context())
	require.NoError(t, err)
	require.JSONEq(t, `{"total": 42}`, string(m.Payload))
	await.True(t, func() bool {
		_, page := get("/metrics")
		return strings.Contains(page, "oncebox_outbox_published_total")
	}, "it is counted")

	stop()
	ended := <-code
	require.Equal(t, cli.ExitDone, ended, &book)
	code <- ended
}

func TestRelayNeedsABroker(t *testing.T) {
	t.Setenv("ONCEBOX_PULSAR_URL", "")
	t.Setenv("PULSAR_URL", "")
	db := pgtest.Migrated(t)
	var errs bytes.Buffer
	code := runPulsar(t.Context(), &cli.Terminal{Out: io.Discard, Errs: &errs}, []string{"--database-url", pgtest.URL(t), "--schema", db.Schema, "relay"})
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, errs.String(), "ONCEBOX_PULSAR_URL is not set: set the variable, for example to pulsar://localhost:6650")
}
