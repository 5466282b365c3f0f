package pulsar

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// ending is a client that notes its end.
type ending struct {
	pulsarclient.Client

	note func(what string)
}

func (c ending) Close() { c.note("client") }

// After the client is closed a call would open connections that are never closed. So the start and the calls in the background end before.
func TestClientIsClosedLast(t *testing.T) {
	requireOrder := func(start, call time.Duration, want ...string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			var (
				mu    sync.Mutex
				ended []string
			)
			note := func(what string) {
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, what)
			}
			b := &Broker{cfg: Config{CloseTimeout: time.Minute}, log: slog.New(slog.DiscardHandler), client: ending{note: note}}
			b.open, b.end = context.WithCancel(t.Context())
			greetings := 0
			b.start = adapters.NewStart(adapters.Greeting{
				Greet: func(ctx context.Context) error {
					if greetings++; greetings > 1 { // the first one is Begin's own
						<-ctx.Done()
						<-time.After(start)
						note("start")
					}
					return errors.New("away")
				},
				Lasts: answer.Lasts, Timeout: time.Hour, Open: b.open, Log: b.log,
			})
			require.NoError(t, b.start.Begin(t.Context()))
			b.background.Go(func() {
				<-b.open.Done()
				<-time.After(call)
				note("call")
			})
			<-time.After(time.Second) // the start is under way
			require.NoError(t, b.Close())
			require.Equal(t, want, ended)
		})
	}
	requireOrder(time.Second, 2*time.Second, "start", "call", "client")
	requireOrder(2*time.Second, time.Second, "call", "start", "client")
}
