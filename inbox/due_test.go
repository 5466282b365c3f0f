package inbox_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
)

// A parked message is tried when it is due: neither at the next poll, nor after a pause that follows an error.
func TestParkedMessageIsTriedWhenItIsDue(t *testing.T) {
	w := newWorld(t)
	var log lines
	box := inbox.New(w.units, &inbox.Config{
		Tries: 1, RetryDelay: 300 * time.Millisecond, PollInterval: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if m.Attempt < 3 {
			return errNotNow
		}
		return w.effect(ctx, m)
	}))
	runParked(t, box)
	require.NoError(t, h.Handle(t.Context(), ordered("bad", "o1")))
	w.awaitEffects(1)
	require.NotContains(t, log.String(), "could not be looked for")
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
