package otelx

import "go.opentelemetry.io/otel/attribute"

// Operation is an operation of the semantic conventions for messaging: the name and the type of a span.
type Operation string

// An event is created in a unit of work, sent by the relay and processed by each consumer. Its metadata carries the span of its creation. The spans
// of the other two operations are linked to that span and not its children, because they may come days later, and several times.
const (
	OperationCreate  Operation = "create"
	OperationSend    Operation = "send"
	OperationProcess Operation = "process"
)

// Attributes returns the attributes of every span of the operation. destination "": several topics.
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

// SpanName is the operation and, if there is one, the destination.
func (o Operation) SpanName(destination string) string {
	if destination == "" {
		return string(o)
	}
	return string(o) + " " + destination
}
