package otelx

import "go.opentelemetry.io/otel/attribute"

// Operation is one of those that the semantic conventions for messaging know, and is name and type of a span.
type Operation string

// An event is created where it is announced, sent by the relay and processed by each consumer. Its metadata carries the span in
// which it was created; the spans of the other two are linked to that one and not its children, because they may come days
// later, and several times.
const (
	OperationCreate  Operation = "create"
	OperationSend    Operation = "send"
	OperationProcess Operation = "process"
)

// Attributes are those of every span of the operation. destination "": several topics.
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

// SpanName is the operation and, if it is one, the destination.
func (o Operation) SpanName(destination string) string {
	if destination == "" {
		return string(o)
	}
	return string(o) + " " + destination
}
