package pulsar

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

// discreet passes the client's log on without what is none of the log's business: at debug level the client prints whole
// messages, and with some errors all their properties.
type discreet struct{ slog.Handler }

func (d discreet) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo && d.Handler.Enabled(ctx, level)
}

func (d discreet) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
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
	return discreet{d.Handler.WithAttrs(clean)}
}

func (d discreet) WithGroup(name string) slog.Handler { return discreet{d.Handler.WithGroup(name)} }

func private(a slog.Attr) bool { return a.Key == "properties" }

// nowhere is a registerer that keeps the client's own metrics out of the program's registry.
type nowhere struct{}

func (nowhere) Register(prometheus.Collector) error  { return nil }
func (nowhere) MustRegister(...prometheus.Collector) {}
func (nowhere) Unregister(prometheus.Collector) bool { return true }
