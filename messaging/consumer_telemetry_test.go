package messaging_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/metricstest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
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
		_, stop := startIn(ctx, newFakeReceiver(m), h, &messaging.ConsumerConfig{Telemetry: telemetry.Config{TracerProvider: provider}})
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

// A request and what it causes in other processes are one trace. A message that comes days later has one of its own, which is linked.
func TestHandlingIsPartOfTheSendersTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		young, old, untraced := msg("a", 1), msg("b", 1), msg("c", 1)
		young.Metadata, old.Metadata = event.Metadata{event.TraceParent: sender}, event.Metadata{event.TraceParent: sender}
		young.OccurredAt, old.OccurredAt, untraced.OccurredAt = time.Now().Add(-time.Minute), time.Now().Add(-48*time.Hour), time.Now()
		ctx, service := provider.Tracer("test").Start(t.Context(), "the service")
		h := newScript(func(context.Context, *messaging.Message) error { return nil })
		_, stop := startIn(ctx, newFakeReceiver(young, old, untraced), h, &messaging.ConsumerConfig{Telemetry: telemetry.Config{TracerProvider: provider}})
		time.Sleep(time.Second)
		require.NoError(t, stop())
		service.End()
		of := map[string]sdktrace.ReadOnlySpan{}
		for _, s := range spans.Ended() {
			for _, a := range s.Attributes() {
				if a.Key == "messaging.message.id" {
					of[a.Value.AsString()] = s
				}
			}
		}
		require.Equal(t, "b7ad6b7169203331", of[young.ID].Parent().SpanID().String())
		require.Empty(t, of[young.ID].Links())
		require.False(t, of[old.ID].Parent().IsValid())
		require.Equal(t, "b7ad6b7169203331", of[old.ID].Links()[0].SpanContext.SpanID().String())
		require.False(t, of[untraced.ID].Parent().IsValid(), "nor is it a child of what the consumer was started in")
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
			Name: "billing", Telemetry: telemetry.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))},
		})
		time.Sleep(time.Minute)
		require.NoError(t, stop())

		require.Equal(t, map[string]int64{
			"oncebox.consumer.handled ok": 1, "oncebox.consumer.handled error": 1, "oncebox.consumer.handled panic": 1,
			"oncebox.consumer.handled permanent": 1, "oncebox.consumer.running ": 0, "oncebox.consumer.duration": 4,
		}, measured(t, reader))
	})
}

func TestBatchSpanIsLinkedToAllSenders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		a, b := msg("a", 1), msg("b", 1)
		a.Metadata = event.Metadata{event.TraceParent: sender}
		b.Metadata = event.Metadata{event.TraceParent: "00-0af7651916cd43dd8448eb211c80319c-00000000000000b2-01"}
		var inHandler trace.SpanContext
		release := make(chan error)
		h := newBatchScript(func(ctx context.Context, _ []*messaging.Message) error {
			inHandler = trace.SpanContextFromContext(ctx)
			return <-release
		}, fine)
		r := newFakeReceiver()
		cfg := oneLane(10)
		cfg.Name = "billing"
		cfg.Telemetry.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		reader := metric.NewManualReader()
		cfg.Telemetry.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
		_, stop := start(t, r, h, cfg)
		for _, m := range []*messaging.Message{msg("c", 1), a, b} {
			r.incoming <- m
			synctest.Wait() // the first one alone, the others meanwhile
		}
		release <- nil
		release <- &messaging.BatchError{Failed: map[int]error{0: nil}}
		synctest.Wait()
		require.NoError(t, stop())

		span := spans.Ended()[1]
		require.Equal(t, "process thing", span.Name())
		require.Equal(t, span.SpanContext().SpanID(), inHandler.SpanID())
		require.Len(t, span.Links(), 2)
		require.Equal(t, "b7ad6b7169203331", span.Links()[0].SpanContext.SpanID().String())
		require.Equal(t, "00000000000000b2", span.Links()[1].SpanContext.SpanID().String())
		require.Contains(t, span.Attributes(), attribute.Int("messaging.batch.message_count", 2))
		require.Equal(t, "partial", span.Status().Description)
		require.Len(t, spans.Ended(), 3, "one for each batch, one for the message that failed in the second")

		got := measured(t, reader)
		require.Equal(t, int64(3), got["oncebox.consumer.handled ok"])
		require.Equal(t, int64(1), got["oncebox.consumer.handled error"])
		require.Zero(t, got["oncebox.consumer.running "])
		require.Equal(t, int64(3), got["oncebox.consumer.duration"])
	})
}

// measured sums up what was measured, by name and outcome.
func measured(t *testing.T, reader *metric.ManualReader) map[string]int64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &data))
	got := map[string]int64{}
	for _, m := range data.ScopeMetrics[0].Metrics {
		if m.Name == "oncebox.router.skipped" {
			continue // it is by topic alone
		}
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
	return got
}

// What the metric shows of a handler that takes 9 ms lies between the bounds that are next to it, alone and in a batch.
func TestDurationIsThatOfTheHandler(t *testing.T) {
	for name, start := range map[string]func(*testing.T, messaging.Receiver, *messaging.ConsumerConfig) (*messaging.Consumer, func() error){
		"one by one": func(t *testing.T, r messaging.Receiver, cfg *messaging.ConsumerConfig) (*messaging.Consumer, func() error) {
			return start(t, r, newScript(func(context.Context, *messaging.Message) error {
				time.Sleep(9 * time.Millisecond)
				return nil
			}), cfg)
		},
		"batches": func(t *testing.T, r messaging.Receiver, cfg *messaging.ConsumerConfig) (*messaging.Consumer, func() error) {
			cfg.BatchSize = 10
			return start(t, r, newBatchScript(func(context.Context, []*messaging.Message) error {
				time.Sleep(9 * time.Millisecond)
				return nil
			}, never), cfg)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reader := metric.NewManualReader()
				_, stop := start(t, newFakeReceiver(msg("a", 1), msg("b", 1), msg("c", 1)), &messaging.ConsumerConfig{
					Name: "billing", Telemetry: telemetry.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))},
				})
				time.Sleep(time.Minute)
				require.NoError(t, stop())
				low, high := metricstest.Bucket(t, reader, "oncebox.consumer.duration")
				require.Equal(t, [2]float64{.005, .01}, [2]float64{low, high})
			})
		})
	}
}
