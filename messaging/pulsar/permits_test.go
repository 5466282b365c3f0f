package pulsar

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/topics"
	"github.com/oncebox/oncebox/telemetry"
)

// The client throws away a batch that it cannot decompress, and gives back one permit for all of it.
func TestPermitsThatTheClientLostAreNoticed(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := config(n)
	cfg.Topics, cfg.Partitions = []string{"order"}, 1
	e := newEffects(t, cfg, n)
	l, err := messaging.NewLoop(e.broker, messaging.Subscription{Topic: "order", Name: "s"}, e.handler,
		&messaging.ConsumerConfig{DrainTimeout: time.Second, BacklogInterval: 100 * time.Millisecond,
			Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	const unknown = 77
	newBareProducer(t, cfg, "order-partition-0").send(pb{}.number(8, unknown).number(9, 10).number(11, 200), []byte("no batch"))
	e.settled("order", "s") // it was thrown away
	require.NoError(t, e.broker.Publish(t.Context(), series("order", 10, 10)))
	e.settled("order", "s")
	e.requireOnceInOrder(10, 10)
}

func TestPermitsThatAreUsedAreNotTakenForLost(t *testing.T) {
	r, _ := fakeReceiver(messaging.Shared)
	r.name, r.options.ReceiverQueueSize = "me", 4
	r.broker.log = slog.New(slog.DiscardHandler)
	look := func(permits int, listening bool) bool {
		part := topics.Backlog{Waiting: 9, Partition: 1}
		part.Consumers = append(part.Consumers, struct {
			Name    string `json:"consumerName"`     //nolint:tagliatelle // Pulsar's
			Permits int    `json:"availablePermits"` //nolint:tagliatelle // Pulsar's
		}{"me", permits})
		r.permits.listening.Store(listening)
		r.leaked = 0
		r.lookForPermits([]topics.Backlog{part})
		return r.leaked > 0
	}
	for _, c := range []struct {
		name      string
		permits   int
		listening bool
		between   func()
		want      bool
	}{
		{"lost", 0, true, func() {}, true},
		{"there are some", 1, true, func() {}, false},
		{"nobody has asked the client", 0, false, func() {}, false},
		{"one has come", 0, true, func() { r.last++; r.permits.heard[1]++ }, false},
		{"many of others have come", 0, false, func() { r.last += 9 }, true},
		{"one is being handled", 0, true, func() { r.silence.inHand[1] = 1 }, false},
		{"it pauses", 0, true, r.Pause, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r.Resume()
			r.silence.inHand, r.permits.starved, r.permits.listened = map[int32]int{}, nil, false
			require.False(t, look(c.permits, c.listening), "one look is not enough")
			c.between()
			require.Equal(t, c.want, look(c.permits, c.listening))
		})
	}
}
