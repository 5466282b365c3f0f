package otlp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	collected "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/oncebox/oncebox/telemetry/otlp"
)

// set sets variables in place of those of this process.
func set(t *testing.T, vars ...string) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for n := 0; n+1 < len(vars); n += 2 {
		t.Setenv(vars[n], vars[n+1])
	}
}

func TestNoTracesUnlessTheVariablesAskForThem(t *testing.T) {
	for _, vars := range [][]string{
		nil,
		{"OTEL_SERVICE_NAME", "shop"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", "OTEL_SDK_DISABLED", "true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER", "none"},
	} {
		set(t, vars...)
		provider, end, err := otlp.Traces(t.Context(), "shop")
		require.NoError(t, err)
		_, span := provider.Tracer("x").Start(t.Context(), "work")
		require.False(t, span.IsRecording(), "%v", vars)
		require.NoError(t, end(t.Context()))
	}
}

func TestSpansAreSentToTheCollector(t *testing.T) {
	for _, c := range []struct {
		vars []string // with COLLECTOR in place of its address
		name string
	}{
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "COLLECTOR"}, "shop"},
		{[]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "COLLECTOR/v1/traces", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"}, "shop"},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "COLLECTOR", "OTEL_TRACES_EXPORTER", "otlp", "OTEL_SERVICE_NAME", "shop-2"}, "shop-2"},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "COLLECTOR", "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}, "shop"},
		{[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "COLLECTOR", "OTEL_RESOURCE_ATTRIBUTES", "service.name=shop-3,zone=b"}, "shop-3"},
	} {
		received := make(chan *collected.ExportTraceServiceRequest, 1)
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var sent collected.ExportTraceServiceRequest
			body, err := io.ReadAll(r.Body)
			if err != nil || proto.Unmarshal(body, &sent) != nil || r.URL.Path != "/v1/traces" {
				t.Errorf("%s %v: %s", r.URL.Path, err, body)
			}
			received <- &sent
		}))
		for n := range c.vars {
			c.vars[n] = strings.ReplaceAll(c.vars[n], "COLLECTOR", server.URL)
		}
		set(t, c.vars...)
		provider, end, err := otlp.Traces(t.Context(), "shop")
		require.NoError(t, err)
		_, span := provider.Tracer("x").Start(t.Context(), "work")
		span.End()
		require.NoError(t, end(t.Context()), "the last spans are sent at the end")
		sent := (<-received).GetResourceSpans()
		require.Len(t, sent, 1)
		require.Equal(t, "work", sent[0].GetScopeSpans()[0].GetSpans()[0].GetName())
		name := ""
		for _, attr := range sent[0].GetResource().GetAttributes() {
			if attr.GetKey() == "service.name" {
				name = attr.GetValue().GetStringValue()
			}
		}
		require.Equal(t, c.name, name, "%v", c.vars)
		server.Close()
	}
}

func TestWhatCannotBeSentIsAnError(t *testing.T) {
	for _, c := range []struct {
		vars []string
		says string
	}{
		{
			[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
			`OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": this program sends http/protobuf only; set it to that, and give the port`,
		},
		{
			[]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json",
				"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf",
			},
			`OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is "http/json"`,
		},
		{[]string{"OTEL_TRACES_EXPORTER", "zipkin"}, `OTEL_TRACES_EXPORTER is "zipkin": this program has the exporter otlp only; give otlp or none`},
		{
			[]string{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"},
			"OTEL_EXPORTER_OTLP_ENDPOINT is no address of a collector: give one as http://collector:4318",
		},
	} {
		set(t, c.vars...)
		_, _, err := otlp.Traces(t.Context(), "shop")
		require.ErrorContains(t, err, c.says)
	}
}
