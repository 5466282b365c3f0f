package otlp

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// The variables that decide whether traces are sent, and how (OpenTelemetry specification, "Environment Variable Specification" and "OpenTelemetry
// Protocol Exporter"). A variable with TRACES in its name counts more than the general one.
const (
	disabled       = "OTEL_SDK_DISABLED"
	exporters      = "OTEL_TRACES_EXPORTER"
	endpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	protocol       = "OTEL_EXPORTER_OTLP_PROTOCOL"
	tracesProtocol = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"

	linked = "http/protobuf"
)

// Traces returns a provider for telemetry.Config.TracerProvider, and the function that sends the last spans at the end of the process. If neither an
// endpoint nor the exporter otlp is set, or OTEL_SDK_DISABLED is true, the provider makes no spans. service is the name of the service, unless
// OTEL_SERVICE_NAME is set.
func Traces(ctx context.Context, service string) (provider trace.TracerProvider, end func(context.Context) error, err error) {
	on, err := asked()
	if err != nil {
		return nil, nil, fmt.Errorf("otlp: Traces: %w", err)
	}
	if !on {
		return noop.NewTracerProvider(), func(context.Context) error { return nil }, nil
	}
	exporter, err := otlptracehttp.New(ctx) // it reads its variables by itself, and does not connect yet
	if err != nil {
		return nil, nil, fmt.Errorf("otlp: Traces: %w", err)
	}
	// The variables come last, because a later name of the service replaces an earlier one.
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(attribute.String("service.name", service)), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("otlp: Traces: OTEL_RESOURCE_ATTRIBUTES: give name=value, several with commas between them: %w", err)
	}
	spans := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	return spans, spans.Shutdown, nil
}

// asked reports whether the variables ask for traces.
func asked() (bool, error) {
	if strings.EqualFold(os.Getenv(disabled), "true") {
		return false, nil
	}
	switch name := os.Getenv(exporters); name {
	case "none":
		return false, nil
	case "", "otlp":
	default:
		return false, fmt.Errorf("%s is %q: this program has the exporter otlp only; give otlp or none", exporters, name)
	}
	if variable, name := first(tracesProtocol, protocol); name != "" && name != linked {
		return false, fmt.Errorf("%s is %q: this program sends %s only; set it to that, and give the port of the collector for it, which is usually 4318",
			variable, name, linked)
	}
	variable, address := first(tracesEndpoint, endpoint)
	if address == "" {
		return os.Getenv(exporters) == "otlp", nil // the default address: http://localhost:4318
	}
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return false, fmt.Errorf("%s is no address of a collector: give one as http://collector:4318", variable)
	}
	return true, nil
}

// first returns the first variable that is set, and its value.
func first(names ...string) (name, value string) {
	for _, name := range names {
		if value := os.Getenv(name); value != "" {
			return name, value
		}
	}
	return "", ""
}
