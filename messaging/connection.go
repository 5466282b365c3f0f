package messaging

import (
	"context"
	"log/slog"
	"time"

	"github.com/oncebox/oncebox/internal/quietlog"
)

// Connection describes whether a consumer is connected to the broker, and so can receive messages.
type Connection struct {
	// Parts is how many connections there should be: one for each partition, or 1 for a topic without partitions. Away is how many of
	// them are missing.
	Parts, Away int
	// Since is when the connection last changed between complete, partly missing and missing.
	Since time.Time
	// Err is the reason why connections are missing; nil if it is not known.
	Err error
}

// IsAway reports whether all connections are missing, so that no message can arrive.
func (c Connection) IsAway() bool { return c.Away > 0 && c.Away >= c.Parts }

// ConnectedReceiver is a [Receiver] that connects again by itself after it has lost its connection. Receive only waits meanwhile, so without this
// interface a lost connection looks like an idle topic.
type ConnectedReceiver interface {
	Receiver

	// Connection returns the present state. It does not ask the broker.
	Connection() Connection
}

const (
	// briefly is how long a connection may be missing before the log mentions it. A restart of the broker, or a topic that moves to another broker,
	// ends connections for a moment.
	briefly = 10 * time.Second
	// looksAtConnection is how often a loop compares the state of its connection with what it has logged.
	looksAtConnection = 2 * time.Second
	// sayAgain is the time between two log lines about the same missing connection.
	sayAgain = time.Minute
)

// Connection returns whether the consumer is connected to the broker. Before [Loop.Run], and while the loop is not subscribed, its only
// connection is missing.
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

// said is what the last log line said about the connection.
type said struct {
	missing bool // at least one connection was missing
	all     bool // all connections were missing
	since   time.Time
	at      time.Time // when the line was logged
}

// reportConnection logs a connection that is missing for longer than briefly: once, then once a minute, and when it is back. It ends when
// ctx is done.
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

// report compares the connection with the last log line, logs a change, and returns what the log says now.
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
		before.since = now.Since // the outage begins with its first missing connection; later ones come and go within it
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
