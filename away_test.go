package oncebox_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
)

// late is a broker that cannot be reached until the test lets it come. It records calls that come in the wrong order.
type late struct {
	*memory.Broker

	come  chan struct{}
	tries atomic.Int32

	mu       sync.Mutex
	declared map[messaging.Subscription]bool
	early    []string
}

func (l *late) Declare(_ context.Context, _ []string, subscriptions []messaging.Subscription) error {
	l.tries.Add(1)
	select {
	case <-l.come:
	default:
		return fmt.Errorf("%w: nobody listens", messaging.ErrBrokerDown)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range subscriptions {
		l.declared[messaging.Subscription{Topic: s.Topic, Name: s.Name}] = true
	}
	return nil
}

func (l *late) Publish(ctx context.Context, msgs []event.Envelope) error {
	l.mu.Lock()
	if !l.declared[messaging.Subscription{Topic: "order", Name: "billing"}] {
		l.early = append(l.early, msgs[0].AggregateID)
	}
	l.mu.Unlock()
	return l.Broker.Publish(ctx, msgs)
}

// A service whose broker is away at the start serves: its units commit. When the broker comes the subscriptions are made before
// the relay publishes, and what was stored meanwhile is handled.
func TestBrokerThatComesLate(t *testing.T) {
	db := pgtest.Migrated(t)
	broker := &late{Broker: memory.New(nil), come: make(chan struct{}), declared: map[messaging.Subscription]bool{}}
	cfg := apptest.Config()
	var log logbook.Book
	cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(&log, nil))
	app, err := oncebox.New(db.DB, broker, cfg)
	require.NoError(t, err)
	event.Register[OrderPlaced](app.Registry)
	var handled atomic.Int32
	app.Consume("order", "billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		handled.Add(1)
		return nil
	}))
	apptest.Run(t, app)
	await.True(t, func() bool { return broker.tries.Load() >= 3 }, "the broker is asked again")
	place(t, app, "a", "b", "c")
	require.NoError(t, app.ReadyToWrite(t.Context()))
	require.ErrorContains(t, app.Ready(t.Context(), oncebox.Relay), "nobody listens")
	require.ErrorContains(t, app.Ready(t.Context(), oncebox.Consumers), "consumer billing is not subscribed")
	require.Equal(t, 1, log.Count("the broker does not answer"), "once, however often it is asked")

	close(broker.come)
	await.True(t, func() bool { return handled.Load() >= 3 }, "what was stored meanwhile is handled")
	await.True(t, func() bool { return app.Ready(context.Background()) == nil }, "the app is ready")
	require.Equal(t, 1, log.Count("the broker answers"))
	require.Empty(t, broker.early, "published before the subscriptions were made")
}

// mute is a broker that takes a question and does not answer it.
type mute struct{ *late }

func (d mute) Declare(ctx context.Context, _ []string, _ []messaging.Subscription) error {
	d.tries.Add(1)
	<-ctx.Done()
	return fmt.Errorf("%w: no answer", messaging.ErrBrokerDown)
}

func TestRunEndsWhileTheBrokerIsAway(t *testing.T) {
	for name, from := range map[string]func(*late) oncebox.Broker{
		"between two tries": func(l *late) oncebox.Broker { return l },
		"within a try":      func(l *late) oncebox.Broker { return mute{l} },
	} {
		t.Run(name, func(t *testing.T) {
			db := pgtest.Migrated(t)
			broker := &late{Broker: memory.New(nil), come: make(chan struct{})}
			app, err := oncebox.New(db.DB, from(broker), apptest.Config())
			require.NoError(t, err)
			app.Consume("order", "billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil }))
			stop := apptest.Run(t, app)
			await.True(t, func() bool { return broker.tries.Load() > 0 }, "the broker is asked")
			stop() // demands nil
		})
	}
}
