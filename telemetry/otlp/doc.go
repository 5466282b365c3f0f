// Package otlp sends traces to a collector, as the standard variables of OpenTelemetry say: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME,
// OTEL_TRACES_SAMPLER and the others. The protocol is OTLP over HTTP with protobuf.
//
// # Guarantees
//
// Without these variables there are no traces, and nothing is sent. A variable that asks for another protocol or another exporter is an error with
// its name. A collector that is away never holds up the process: spans that cannot be sent are dropped.
//
// Read first: traces.go:Traces.
package otlp
