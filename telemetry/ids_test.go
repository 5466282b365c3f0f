package telemetry_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/telemetry"
)

func TestLinesHaveTheIDsOfTheirContext(t *testing.T) {
	var out strings.Builder
	log := slog.New(telemetry.WithIDs(slog.NewTextHandler(&out, nil))).With("a", 1)
	ctx := event.WithMetadata(t.Context(), event.Metadata{event.CorrelationID: "checkout-77"})
	ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
	log.InfoContext(ctx, "here")
	require.Contains(t, out.String(), "msg=here a=1 trace_id=01000000000000000000000000000000 correlation_id=checkout-77\n")
	out.Reset()
	log.WithGroup("g").InfoContext(t.Context(), "there")
	require.Contains(t, out.String(), "msg=there a=1\n")
}
