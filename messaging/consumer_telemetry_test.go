package messaging_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

const sender = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestConsumerSpansAreLinkedToTheSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		m := msg("a", 1)
		m.Metadata = event.Metadata{event.TraceParent: sender}
		var inHandler trace.SpanContext
		h := newScript(func(ctx context.Context, m *messaging.Message) error {
			inHandler = trace.SpanContextFromContext(ctx)
			if m.Attempt == 1 {
				return errNotNow
			}
			return nil
		})
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		ctx, service := provider.Tracer("test").Start(t.Context(), "the service")
		_, stop := startIn(ctx, newFakeReceiver(m), h, &messaging.ConsumerConfig{TracerProvider: provider})
		time.Sleep(time.Second)
		require.NoError(t, stop())

		require.Len(t, spans.Ended(), 2, "one per try")
		service.End()
		span := spans.Ended()[1]
		require.Equal(t, "process thing", span.Name())
		require.Equal(t, trace.SpanKindConsumer, span.SpanKind())
		require.Equal(t, span.SpanContext().SpanID(), inHandler.SpanID())
		require.False(t, span.Parent().IsValid(), "not a child of what the consumer was started in")
		require.Len(t, span.Links(), 1)
		require.Equal(t, "b7ad6b7169203331", span.Links()[0].SpanContext.SpanID().String())
	})
}

func TestConsumerMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := metric.NewManualReader()
		h := newScript(func(_ context.Context, m *messaging.Message) error {
			switch m.Attempt {
			case 1:
				return errNotNow
			case 2:
				panic("no")
			case 3:
				return messaging.Permanent(errNotNow)
			default:
				return nil
			}
		})
		_, stop := start(t, newFakeReceiver(msg("a", 1)), h, &messaging.ConsumerConfig{
			Name: "billing", MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
		})
		time.Sleep(time.Minute)
		require.NoError(t, stop())

		var data metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(context.Background(), &data))
		got := map[string]int64{}
		for _, m := range data.ScopeMetrics[0].Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					consumer, _ := p.Attributes.Value("consumer")
					require.Equal(t, "billing", consumer.AsString())
					outcome, _ := p.Attributes.Value("outcome")
					got[m.Name+" "+outcome.AsString()] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					got[m.Name] += int64(p.Count)
				}
			}
		}
		require.Equal(t, map[string]int64{
			"oncebox.consumer.handled ok": 1, "oncebox.consumer.handled error": 1, "oncebox.consumer.handled panic": 1,
			"oncebox.consumer.handled permanent": 1, "oncebox.consumer.running ": 0, "oncebox.consumer.duration": 4,
		}, got)
	})
}
