package apptest_test

import (
	"context"
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
)

// One program is the API, the relay or the consumers. What a process does not do, nobody does until there is a process for it.
func TestPartsAreChosenByASetting(t *testing.T) {
	db, n := pgtest.Open(t), pulsartest.Open(t)
	as := func(parts string) map[string]string {
		vars := variables(t, db, onPulsar(n, n.URL))
		vars["ONCEBOX_SERVE_PARTS"] = parts
		return vars
	}
	api := run(t, shop(), as("api"))
	status, body := do(t, http.MethodPost, api.url+"/orders/o-1", "Idempotency-Key", "k1")
	require.Equal(t, http.StatusCreated, status, body)

	relay := run(t, shop(), as("relay"))
	status, _ = do(t, http.MethodPost, relay.url+"/orders/o-2", "Idempotency-Key", "k2")
	require.Equal(t, http.StatusNotFound, status, "a relay answers no requests")
	await.True(t, func() bool {
		return count(t, db, "SELECT count(*) FROM outbox_messages WHERE status = 'SENT'") == 1
	}, "the event to be published")
	status, _ = do(t, http.MethodGet, relay.url+"/metrics")
	require.Equal(t, http.StatusOK, status)
	require.Zero(t, count(t, db, "SELECT count(*) FROM handled"), "nobody consumes")

	consumers := run(t, shop(), as("consumers"))
	await.True(t, func() bool { return count(t, db, "SELECT count(*) FROM handled") == 1 }, "the event to be handled")
	for _, r := range []*running{api, relay, consumers} {
		ready(t, r.url)
	}
}

// An api alone publishes nothing, also without a broker.
func TestAPIAlonePublishesNothing(t *testing.T) {
	db := pgtest.Open(t)
	vars := variables(t, db, map[string]string{"ONCEBOX_SERVE_PARTS": "api"})
	api := run(t, shop(), vars)
	status, body := do(t, http.MethodPost, api.url+"/orders/o-1", "Idempotency-Key", "k1")
	require.Equal(t, http.StatusCreated, status, body)
	require.NoError(t, api.end())
	require.Equal(t, 1, count(t, db, "SELECT count(*) FROM outbox_messages WHERE status = 'NEW'"))

	rest := maps.Clone(vars)
	rest["ONCEBOX_SERVE_PARTS"] = "relay,consumers"
	run(t, shop(), rest)
	await.True(t, func() bool { return count(t, db, "SELECT count(*) FROM handled") == 1 }, "the database to carry the event")
}

// A process that does not end in time says so, and ends.
func TestEndHasALimit(t *testing.T) {
	db := pgtest.Open(t)
	vars := variables(t, db, map[string]string{
		"ONCEBOX_SERVE_END_TIMEOUT": "1s", "ONCEBOX_CONSUMER_DRAIN_TIMEOUT": "10m", "ONCEBOX_INBOX_DRAIN_TIMEOUT": "10m",
	})
	handling, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	s := shop()
	s.Setup = func(_ context.Context, app *oncebox.App) (http.Handler, error) {
		app.Consume("order", "stubborn", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
			close(handling)
			<-release
			return nil
		}))
		return nil, nil
	}
	r := run(t, s, vars)
	_, err := db.ExecContext(t.Context(), "SELECT oncebox_add(topic => 'order', event_type => 'order.placed', payload => '{}', source => 'shop')")
	require.NoError(t, err)
	await.Receive(t, handling, "the handler to begin")
	r.stop()
	err = await.Receive(t, r.ended, "the service to end")
	require.ErrorContains(t, err, "the process did not end within 1s")
	require.ErrorContains(t, err, "ONCEBOX_SERVE_END_TIMEOUT")
	r.ended <- nil
}
