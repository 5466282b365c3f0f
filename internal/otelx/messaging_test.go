package otelx_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/oncebox/oncebox/internal/otelx"
)

func TestOperations(t *testing.T) {
	require.Equal(t, "create order", otelx.OperationCreate.SpanName("order"))
	require.Equal(t, "send", otelx.OperationSend.SpanName(""), "several topics")
	require.Equal(t, []attribute.KeyValue{
		attribute.String("messaging.system", "oncebox"),
		attribute.String("messaging.operation.name", "process"),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.destination.name", "order"),
	}, otelx.OperationProcess.Attributes("order"))
	require.Len(t, otelx.OperationSend.Attributes(""), 3)
}
