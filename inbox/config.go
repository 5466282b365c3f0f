package inbox

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
)

const (
	// DefaultRetention is three days more than an outbox keeps what it sent.
	DefaultRetention = 10 * 24 * time.Hour
	// KeepForever keeps the entries until somebody else removes them.
	KeepForever = time.Duration(-1)
)

// Config configures an [Inbox]. The zero value is ready.
type Config struct {
	// Schema holds the tables. Default: the first one of the connection's search_path.
	Schema string
	// Pooler says that a transaction-mode pooler stands before the database: no prepared statements. Default: false.
	Pooler bool
	// Retention is how long it is remembered that a message was handled, at least 24h; KeepForever (-1): for ever. A
	// copy that comes later is handled again, so it must be longer than the broker may redeliver a message and than the
	// sender's outbox keeps events for a replay. Default: 240h.
	Retention time.Duration `env:"RETENTION"`

	// Logger gets an error for every dead letter. Default: slog.Default().
	Logger *slog.Logger
	// TracerProvider is where trace contexts come from: the outcome is noted on the consumer's span. Default: the
	// global one.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the metrics. Default: the global one.
	MeterProvider metric.MeterProvider
}

// Validate names every field that cannot be used.
func (c *Config) Validate() error {
	errs := []error{event.ValidateIdentifier("inbox: Config.Schema", c.Schema)}
	if strings.ContainsAny(c.Schema, `'\`) {
		errs = append(errs, fmt.Errorf("inbox: Config.Schema %q contains a quote or a backslash", c.Schema))
	}
	if c.Retention != 0 && c.Retention != KeepForever && c.Retention < 24*time.Hour {
		errs = append(errs, fmt.Errorf("inbox: Config.Retention is %s: give 24h or more, or KeepForever", c.Retention))
	}
	return errors.Join(errs...)
}

func (c *Config) withDefaults() Config {
	var out Config
	if c != nil {
		out = *c
	}
	if out.Retention == 0 {
		out.Retention = DefaultRetention
	}
	return out
}
