package pulsar

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// discreet passes the client's log on. What the client has to say at info level, some fifty lines for each start, is debug for a
// program that uses it. What is none of the log's business is left out: at debug level the client prints whole messages, and
// with some errors all their properties. While the broker is waited for, each attempt that fails is debug too: [Broker] says that it waits, and why.
// Later, while it is away, each producer and consumer of each partition tries by itself: one line in a minute says so.
type discreet struct {
	slog.Handler

	waiting func() bool
	refused func(reason string) // told of a broker that refuses a connection: the client says it to its log alone
	away    *atomic.Int64       // when the last line of the kind unreachable was passed on, in Unix nanoseconds
}

// unreachable is what the client's log says of each attempt to connect that fails.
const unreachable = "Failed to connect to broker."

// again is whether r says what another line has said within the minute.
func (d discreet) again(r *slog.Record) bool {
	if r.Message != unreachable {
		return false
	}
	last, now := d.away.Load(), r.Time.UnixNano()
	return now-last < int64(time.Minute) || !d.away.CompareAndSwap(last, now)
}

// refusal is how the client's log begins to say so.
const refusal = "Failed to establish connection with broker: "

// level is that under which the log gets what the client says at this one.
func (d discreet) level(client slog.Level) slog.Level {
	if client < slog.LevelWarn || d.waiting() {
		return slog.LevelDebug
	}
	return client
}

func (d discreet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn || level >= slog.LevelInfo && d.Handler.Enabled(ctx, d.level(level))
}

func (d discreet) Handle(ctx context.Context, r slog.Record) error {
	if reason, ok := strings.CutPrefix(r.Message, refusal); ok {
		d.refused(strings.Trim(reason, "'"))
	}
	if !d.Handler.Enabled(ctx, d.level(r.Level)) {
		return nil
	}
	if level := d.level(r.Level); level >= slog.LevelWarn && d.again(&r) {
		return nil
	}
	clean := slog.NewRecord(r.Time, d.level(r.Level), r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if !private(a) {
			clean.AddAttrs(a)
		}
		return true
	})
	return d.Handler.Handle(ctx, clean)
}

func (d discreet) WithAttrs(attrs []slog.Attr) slog.Handler {
	var clean []slog.Attr
	for _, a := range attrs {
		if !private(a) {
			clean = append(clean, a)
		}
	}
	return discreet{d.Handler.WithAttrs(clean), d.waiting, d.refused, d.away}
}

func (d discreet) WithGroup(name string) slog.Handler {
	return discreet{d.Handler.WithGroup(name), d.waiting, d.refused, d.away}
}

func private(a slog.Attr) bool { return a.Key == "properties" }

// nowhere is a registerer that keeps the client's own metrics out of the program's registry.
type nowhere struct{}

func (nowhere) Register(prometheus.Collector) error  { return nil }
func (nowhere) MustRegister(...prometheus.Collector) {}
func (nowhere) Unregister(prometheus.Collector) bool { return true }
