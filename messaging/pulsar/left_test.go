package pulsar

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

// leaver is a consumer that cannot store bad messages.
type leaver struct {
	mu      sync.Mutex
	mended  bool
	handled []string
}

func (l *leaver) Handle(_ context.Context, m *messaging.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.Type == "bad" && !l.mended {
		return messaging.LeaveAtBroker(fmt.Errorf("nothing can store %s", m.ID))
	}
	l.handled = append(l.handled, m.ID)
	return nil
}

func (l *leaver) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mended = true
}

func (l *leaver) has(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.handled, id)
}

// Messages that are left at the broker are in the way of nothing: later ones are handled, the process is ready and
// reports how many are left, the watch over silent partitions works, and a left message that comes again is handled.
func TestWhatIsLeftAtTheBrokerIsNoStandstill(t *testing.T) {
	t.Parallel()
	n := pulsartest.Open(t)
	cfg := declared(n, "order", "s")
	cfg.Partitions = 1
	b := connect(t, cfg)
	log := &logbook.Book{}
	received, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "s"})
	require.NoError(t, err)
	r := received.(*receiver)
	h := &leaver{}
	c := messaging.NewConsumer(r, h, &messaging.ConsumerConfig{BacklogInterval: 50 * time.Millisecond, Telemetry: telemetry.Config{Logger: log.Logger()}})
	ctx, stop := context.WithCancel(patient(t))
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()

	bad, good, later := envelope("order", "a", 1), envelope("order", "b", 1), envelope("order", "a", 2)
	bad.Type = "bad"
	require.NoError(t, b.Publish(ctx, []event.Envelope{bad, good, later}))
	await.True(t, func() bool { return h.has(good.ID) && h.has(later.ID) }, "what came later is handled")
	await.True(t, func() bool { p := c.Progress(); return p.Backlog == 0 && p.Left == 1 }, "the consumer says that one is left")
	require.Zero(t, c.Progress().Standstill)
	require.Positive(t, log.Count("the broker keeps it"))

	h.mend()
	await.True(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.silence.inHand[0] == 0
	}, "nothing is in hand")
	r.mu.Lock()
	r.silence.asked = leftPatience // as after a long silence
	r.mu.Unlock()
	r.ask(false)
	await.True(t, func() bool { return h.has(bad.ID) }, "what was left has come again")
	await.True(t, func() bool { p := c.Progress(); return p.Backlog == 0 && p.Left == 0 }, "the consumer says that none is left")
	stop()
	require.NoError(t, <-done)
}
