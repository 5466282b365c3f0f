package messaging

import (
	"context"
	"log/slog"
	"time"

	"github.com/oncebox/oncebox/internal/quietlog"
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
	// briefly is how long a connection may be missing before that is logged. A broker that hands a topic over to another one, or is
	// restarted, ends connections for a moment.
	briefly = 10 * time.Second
	// looksAtConnection is the time between two looks of a loop at its connection.
	looksAtConnection = 2 * time.Second
	// sayAgain is the time between two log lines about a missing connection.
	sayAgain = time.Minute
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

// said is what the log says about a connection.
type said struct {
	missing bool // anything
	all     bool // of it
	since   time.Time
	at      time.Time // when it was said last
}

// reportConnection logs when the connection has been missing for more than a moment, once a minute while it is, and when it is back, until ctx is done.
func (l *Loop) reportConnection(ctx context.Context) {
	ctx, looked := quietlog.Away(ctx, quietlog.Broker), said{}
	ticker := time.NewTicker(looksAtConnection)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			looked = l.report(ctx, looked, l.Connection())
		case <-ctx.Done():
			return
		}
	}
}

// report logs a change of the connection, compared with the last log line, and returns the new state of the log.
func (l *Loop) report(ctx context.Context, before said, now Connection) said {
	attrs := []slog.Attr{slog.String("consumer", l.cfg.Name), slog.String("topic", l.subscription.Topic)}
	switch {
	case now.Away == 0 && before.missing:
		l.log.LogAttrs(ctx, slog.LevelInfo, "oncebox: a consumer is connected again",
			append(attrs, slog.Duration("away", time.Since(before.since).Round(time.Second)))...)
		return said{}
	case now.Away == 0 || time.Since(now.Since) < briefly,
		before.missing && before.all == now.IsAway() && time.Since(before.at) < sayAgain:
		return before
	}
	if !before.missing {
		before.since = now.Since // of the whole outage, whose parts may come and go
	}
	attrs = append(attrs, slog.Time("since", before.since))
	text := "oncebox: a consumer has no connection to the broker and receives nothing; it reconnects by itself"
	if !now.IsAway() {
		text = "oncebox: a consumer has no connection to some partitions of its topic; it reconnects by itself"
		attrs = append(attrs, slog.Int("partitions", now.Away))
	}
	l.log.LogAttrs(ctx, slog.LevelWarn, text, append(attrs, slog.Any("error", now.Err))...)
	return said{missing: true, all: now.IsAway(), since: before.since, at: time.Now()}
}
