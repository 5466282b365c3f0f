package otelx

import "go.opentelemetry.io/otel/attribute"

// Operation is a messaging operation of OpenTelemetry's semantic conventions. It decides name and type of a span.
type Operation string

// An event is created in a unit of work, sent by the relay and processed by each consumer. Its metadata carries the span of its creation. The spans
// of the other two operations are linked to that span and not its children, because they may come days later, and several times.
const (
	OperationCreate  Operation = "create"
	OperationSend    Operation = "send"
	OperationProcess Operation = "process"
)

// Attributes returns the attributes that every span of the operation has. destination is "" if there are
// several topics.
func (o Operation) Attributes(destination string) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.String("messaging.system", "oncebox"),
		attribute.String("messaging.operation.name", string(o)),
		attribute.String("messaging.operation.type", string(o)),
	}
	if destination != "" {
		attrs = append(attrs, attribute.String("messaging.destination.name", destination))
	}
	return attrs
}

// SpanName returns the operation, and the destination if there is one.
func (o Operation) SpanName(destination string) string {
	if destination == "" {
		return string(o)
	}
	return string(o) + " " + destination
}
