package main

import (
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/commandtest"
	"github.com/oncebox/oncebox/messaging/nats"
	own "github.com/oncebox/oncebox/messaging/nats/natsserver"
)

func TestMain(m *testing.M) { commandtest.Main(m, main) }

// start starts a server of a test.
func start(t *testing.T, options func(*natsserver.Options)) *own.Server {
	t.Helper()
	server, err := own.Start(&own.Config{Dir: t.TempDir(), Options: options})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	return server
}

// use makes the topic order, and has a message handled there.
func use(t *testing.T, cfg *nats.Config) *nats.Broker {
	t.Helper()
	broker, err := nats.Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	commandtest.Use(t, broker, "order")
	return broker
}

// The settings that lose messages or store copies are found, each with the command that mends it.
func TestDoctorFindsWhatHurts(t *testing.T) {
	server := start(t, nil)
	broker := use(t, &nats.Config{URL: server.URL(), Partitions: 1})
	p := commandtest.New(t, "oncebox-nats", "ONCEBOX_NATS_URL", server.URL())
	p.RequireFindings()
	p.RequireUse(broker)

	client, err := natsclient.Connect(server.URL())
	require.NoError(t, err)
	defer client.Close()
	js, err := jetstream.New(client)
	require.NoError(t, err)
	stream, err := js.Stream(t.Context(), "oncebox-order")
	require.NoError(t, err)
	of := stream.CachedInfo().Config
	of.Discard, of.MaxBytes, of.Duplicates = jetstream.DiscardOld, 1<<20, 20*time.Second
	_, err = js.UpdateStream(t.Context(), of)
	require.NoError(t, err)
	for c := range stream.ListConsumers(t.Context()).Info() {
		c.Config.MaxDeliver = 5
		_, err = js.UpdateConsumer(t.Context(), "oncebox-order", c.Config)
		require.NoError(t, err)
	}
	p.RequireFindings(
		"problem (broker): topic order: it exists with other settings: discard is DiscardOld and must be DiscardNew: it has a limit of size",
		"warning (broker): topic order: its stream recognizes copies for 20s",
		"at most 5 times, and drops it then: nats consumer edit oncebox-order ",
	)
	found := p.Doctor("--topic", "invoice")
	require.Len(t, found, 1)
	require.Contains(t, found[0], "problem (broker): topic invoice: it does not exist: there is no stream oncebox-invoice: correct the name, or start")
}

// A server that is away, and users that may not look, are findings: the command does not hang.
func TestDoctorCannotLook(t *testing.T) {
	server := start(t, func(o *natsserver.Options) {
		o.Users = []*natsserver.User{
			{Username: "all", Password: "p"},
			{Username: "writer", Password: "p", Permissions: &natsserver.Permissions{
				Publish: &natsserver.SubjectPermission{Allow: []string{"oncebox.>"}},
			}},
		}
	})
	use(t, &nats.Config{URL: server.URL(), User: "all", Password: "p"})
	p := commandtest.New(t, "oncebox-nats", "ONCEBOX_NATS_URL", server.URL(), "ONCEBOX_NATS_USER", "all", "ONCEBOX_NATS_PASSWORD", "p")
	p.RequireFindings()
	p.With("ONCEBOX_NATS_USER", "writer").RequireFindings("list the streams: the user of this connection has no permission: ")
	p.With("ONCEBOX_NATS_PASSWORD", "wrong").RequireFindings("problem (connection): the service could not connect to the broker: ")
	server.Stop()
	p.RequireFindings("problem (connection): ")
}

// The address of another system is refused before anything waits for it.
func TestAddressOfAnotherSystem(t *testing.T) {
	p := commandtest.New(t, "oncebox-nats")
	for _, url := range []string{"kafka://localhost:9092", "localhost:9092", "pulsar://localhost:6650", "http://localhost:8222"} {
		p.RequireRefused("ONCEBOX_NATS_URL", url, "does not look like nats://host:4222 or tls://host:4222 (ONCEBOX_NATS_URL)")
	}
}
