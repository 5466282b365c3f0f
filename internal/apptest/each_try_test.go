package apptest_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/eachtry"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
)

// strangers are messages of programs that know nothing of oncebox.
var strangers = []pulsarclient.ProducerMessage{
	{Payload: []byte("bare")},
	{Payload: []byte("a key"), Key: "stranger"},
	{Payload: []byte("an ordering key"), OrderingKey: "ordering"},
	{Payload: []byte("both keys"), Key: "a key", OrderingKey: "another"},
	{Key: "tombstone"},
	{Payload: []byte("an event time"), Key: "time", EventTime: time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.FixedZone("CET", 3600))},
	{Payload: []byte("properties"), Key: "properties", Properties: map[string]string{"": "empty", "x": "y\x00z", "content-type": "text/plain\x00"}},
	{Payload: []byte("no tenant"), Key: "no tenant", Properties: map[string]string{
		"ce_specversion": "1.0", "ce_id": "no tenant", "ce_source": "elsewhere", "ce_type": "t", "ce_time": "2026-01-02T03:04:05.123456789+01:00",
	}},
	{Payload: []byte("strange attributes"), Properties: map[string]string{
		"ce_id": "strange", "ce_source": "s|\\", "ce_time": "yesterday", "ce_sequence": "-1", "ce_schemaversion": "99999999999", "ce_specversion": "0.3",
		"ce_orderingkey": "strange|\\", "ce_tenantid": "t|1", "ce_correlationid": "c\x00", "traceparent": "00-none", "meta-x": "y", "ce_other": "z",
	}},
	{Payload: []byte("an aggregate"), Key: "stranger's aggregate", Properties: map[string]string{
		"ce_id": "2", "ce_source": "s", "ce_subject": "a|1", "ce_aggregatetype": "parcel", "ce_aggregateversion": "7", "ce_sequence": "9223372036854775807",
	}},
}

// A handler sees the same message on each try: on the first delivery, on a redelivery because the process ended in
// between, on a retry from the table, and after an operator's replay.
func TestMessageOfABrokerIsTheSameOnEachTry(t *testing.T) {
	carried := eachtry.Kinds()
	for kind, e := range carried {
		e.SchemaVersion = min(e.SchemaVersion, math.MaxInt32) // no broker takes more
		e.Topic = "order"
		carried[kind] = e
	}
	t.Run("memory", func(t *testing.T) {
		broker := memory.New(nil)
		tryAgain(t, broker, len(carried), func() { publishEach(t, broker, carried) })
	})
	t.Run("pulsar", func(t *testing.T) {
		namespace := pulsartest.Open(t)
		tenant, name, _ := strings.Cut(namespace.Name, "/")
		cfg := &pulsar.Config{URL: namespace.URL, AdminURL: namespace.AdminURL, Tenant: tenant, Namespace: name,
			Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}}
		broker, err := pulsar.Connect(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, broker.Close()) })
		client, err := pulsarclient.NewClient(pulsarclient.ClientOptions{URL: namespace.URL, Logger: plog.NewLoggerWithSlog(cfg.Telemetry.Logger)})
		require.NoError(t, err)
		t.Cleanup(client.Close)
		tryAgain(t, broker, len(carried)+len(strangers), func() {
			publishEach(t, broker, carried)
			producer, err := client.CreateProducer(pulsarclient.ProducerOptions{
				Topic: fmt.Sprintf("persistent://%s/order", namespace.Name), SendTimeout: -1, // the goroutine that watches it outlives the producer
			})
			require.NoError(t, err)
			defer producer.Close()
			for _, m := range strangers {
				_, err := producer.Send(t.Context(), &m)
				require.NoError(t, err)
			}
		})
	})
}

func publishEach(t *testing.T, broker messaging.Publisher, msgs map[string]event.Envelope) {
	t.Helper()
	for kind, e := range msgs {
		require.NoError(t, broker.Publish(t.Context(), []event.Envelope{e}), kind)
	}
}

// tryAgain runs consumers of each kind, with handlers that fail until all n messages of the topic are dead letters, and then replays these. The service ends
// under the first of them.
func tryAgain(t *testing.T, broker oncebox.Broker, n int, publish func()) {
	t.Helper()
	db := pgtest.Migrated(t)
	cfg := apptest.Config()
	cfg.Inbox.Retry = inbox.RetryPolicy{Tries: 2, MaxAttempts: 4, Policy: retry.Policy{Delay: time.Millisecond, MaxDelay: time.Millisecond}}
	cfg.Inbox.PollInterval = 20 * time.Millisecond
	cfg.Consumer.Concurrency, cfg.Inbox.ParkedConcurrency = 2, 2 // a handler that is held has a connection
	cfg.Consumer.DrainTimeout, cfg.Inbox.DrainTimeout = -1, -1
	var views eachtry.Views
	start := func() (app *oncebox.App, stop func()) {
		app, err := oncebox.New(db.DB, broker, cfg)
		require.NoError(t, err)
		app.Consume("order", "plain", views.Handler("plain"))
		app.Consume("order", "unordered", views.Handler("unordered"), inbox.Unordered())
		app.Consume("order", "leased", views.Handler("leased"), inbox.Leased())
		app.Consume("order", "stored-first", views.Handler("stored-first"), inbox.StoreFirst())
		app.Consume("order", "read-model", readmodel.New(app.Inbox, "read-model", views.Handler("read-model")))
		return app, apptest.Run(t, app)
	}
	const consumers = 5
	views.Hold()
	app, stop := start()
	// The relay would wait for the subscriptions. What is published past it before they are declared makes a topic of its own at Pulsar.
	await.True(t, func() bool { return app.Ready(context.Background(), oncebox.Consumers) == nil }, "the consumers are subscribed")
	publish()
	await.True(t, func() bool { return views.Consumers() == consumers }, "each consumer has a message")
	stop()
	views.Fail()
	app, stop = start()
	count := func() (dead int) {
		require.NoError(t, db.NewRaw("SELECT count(*) FROM inbox_dead").Scan(t.Context(), &dead))
		return dead
	}
	await.True(t, func() bool { return count() == consumers*n }, "all are dead letters")
	require.Equal(t, consumers*n, views.Tries(4))
	views.Succeed()
	_, err := app.Inbox.Dead().ReplayAll(t.Context(), operator.DeadFilter{}, operator.By{Actor: "ann", Reason: "tried it"}, nil)
	require.NoError(t, err)
	await.True(t, func() bool { return views.Succeeded() == consumers*n }, "all are handled")
	stop()
	views.RequireSame(t)
}
