package pulsar

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/publishing"
	"github.com/oncebox/oncebox/telemetry"
)

// instruments holds the tracer and the metrics of a broker.
type instruments struct {
	*publishing.Instruments

	unwatchedTopics metric.Int64Counter
}

func newInstruments(to telemetry.Config) *instruments {
	const pkg = "messaging/pulsar"
	return &instruments{
		Instruments: publishing.New(to, pkg, "pulsar"),
		unwatchedTopics: otelx.Counter(otelx.Meter(to.MeterProvider, pkg), "oncebox.broker.unwatched_topics",
			"Topics this process publishes to that lack a declared subscription, or have neither a subscription nor retention"),
	}
}

// unwatched counts a topic that may lose messages because no subscription keeps them.
func (t *instruments) unwatched(ctx context.Context, topic string) {
	t.unwatchedTopics.Add(ctx, 1, metric.WithAttributes(attribute.String("topic", topic)))
}
