package messaging

import (
	"context"
	"log/slog"
	"time"
)

// Connection says whether messages can come to a consumer.
type Connection struct {
	// Parts is how many connections there should be: one for each partition, or 1. Away is how many of them are missing.
	Parts, Away int
	// Since is when it became so.
	Since time.Time
	// Err is why connections are missing, as far as that is known.
	Err error
}

// IsAway reports whether nothing can come: all connections are missing.
func (c Connection) IsAway() bool { return c.Away > 0 && c.Away >= c.Parts }

// ConnectedReceiver is a [Receiver] that loses its connection and connects again by itself. Receive only waits meanwhile, so an idle topic
// looks the same.
type ConnectedReceiver interface {
	Receiver

	// Connection returns how it is now. It does not ask the broker.
	Connection() Connection
}

const (
	// briefly is for how long a connection may be missing until that is worth a word. A broker that hands a topic over to another one, or is
	// started anew, ends connections for a moment.
	briefly = 10 * time.Second
	// looksAtConnection is how often a loop looks at its connection.
	looksAtConnection = 2 * time.Second
)

// Connection returns whether messages can come to the consumer. Before [Loop.Run], and while it is not subscribed, none can.
func (l *Loop) Connection() Connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return Connection{Parts: 1, Away: 1, Since: l.changed, Err: l.last}
	}
	if r, ok := l.current.receiver.(ConnectedReceiver); ok {
		return r.Connection()
	}
	return Connection{Parts: 1, Since: l.changed}
}

// tellConnection logs when the connection has been missing for more than a moment, and when it is back, until ctx is done.
func (l *Loop) tellConnection(ctx context.Context) {
	ticker := time.NewTicker(looksAtConnection)
	defer ticker.Stop()
	var told Connection // what is missing as far as the log knows; zero: nothing
	for {
		select {
		case <-ticker.C:
			told = l.tell(ctx, told, l.Connection())
		case <-ctx.Done():
			return
		}
	}
}

// tell compares the connection with what the log says of it, and returns what it says now.
func (l *Loop) tell(ctx context.Context, told, now Connection) Connection {
	attrs := []slog.Attr{slog.String("consumer", l.cfg.Name), slog.String("topic", l.subscription.Topic)}
	switch {
	case now.Away == 0 && told.Away > 0:
		l.log.LogAttrs(ctx, slog.LevelInfo, "oncebox: a consumer is connected again",
			append(attrs, slog.Duration("away", time.Since(told.Since).Round(time.Second)))...)
		return Connection{}
	case now.Away == 0 || time.Since(now.Since) < briefly || told.Away > 0 && told.IsAway() == now.IsAway():
		return told
	case now.IsAway():
		l.log.LogAttrs(ctx, slog.LevelWarn, "oncebox: a consumer has no connection to the broker, and receives nothing; it connects again by itself",
			append(attrs, slog.Time("since", now.Since), slog.Any("error", now.Err))...)
	default:
		l.log.LogAttrs(ctx, slog.LevelWarn, "oncebox: a consumer has no connection to some partitions; it connects again by itself",
			append(attrs, slog.Time("since", now.Since), slog.Int("partitions", now.Away), slog.Any("error", now.Err))...)
	}
	if told.Away > 0 {
		now.Since = told.Since // of the whole outage
	}
	return now
}
