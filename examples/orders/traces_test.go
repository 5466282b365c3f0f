//go:build unix

package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collected "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

// aSpan is a span as the collector has received it, with the name of the service that sent it.
type aSpan struct {
	name, process       string
	trace, span, parent string
	links               []string // ids of traces
}

// collector keeps the spans that it receives by OTLP over HTTP.
type collector struct {
	mu    sync.Mutex
	spans []aSpan
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var sent collected.ExportTraceServiceRequest
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &sent) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range sent.GetResourceSpans() {
		var process string
		for _, attr := range of.GetResource().GetAttributes() {
			if attr.GetKey() == "service.name" {
				process = attr.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				one := aSpan{
					name: s.GetName(), process: process, trace: hex.EncodeToString(s.GetTraceId()), span: hex.EncodeToString(s.GetSpanId()),
					parent: hex.EncodeToString(s.GetParentSpanId()),
				}
				for _, l := range s.GetLinks() {
					one.links = append(one.links, hex.EncodeToString(l.GetTraceId()))
				}
				c.spans = append(c.spans, one)
			}
		}
	}
}

// A request to one process, the event that another one publishes and the handler in a third are one trace, and the lines that they log have its
// id. docs/tracing.md shows the same.
func TestOneRequestIsOneTraceOverProcesses(t *testing.T) {
	db, ns := pgtest.Open(t), pulsartest.Open(t)
	var traces collector
	server := httptest.NewServer(&traces)
	defer server.Close()
	common := []string{
		"ONCEBOX_PULSAR_URL=" + ns.URL, "ONCEBOX_PULSAR_ADMIN_URL=" + ns.AdminURL,
		"ONCEBOX_PULSAR_NAMESPACE=" + strings.TrimPrefix(ns.Name, "public/"), "OTEL_EXPORTER_OTLP_ENDPOINT=" + server.URL,
	}
	f, err := kills.OpenFleet(db.DSN, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	places := []string{"api", "projector-0", "consumer-0"}
	for _, name := range places {
		f.Env = append(slices.Clone(common), "OTEL_SERVICE_NAME="+name)
		require.NoError(t, f.Start(t.Context(), name))
	}
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+f.APIAddr()+"/orders",
		strings.NewReader(`{"customer_id":"c1","items":[{"sku":"a","qty":2,"price_cents":500}]}`))
	require.NoError(t, err)
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Idempotency-Key": "k-1", "X-Correlation-Id": "checkout-77",
		"Traceparent": "00-" + traceID + "-b7ad6b7169203331-01",
	} {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	updated := func() bool { return strings.Contains(f.Tail("consumer-0"), "summary updated") }
	await.True(t, updated, "the consumer to handle the event")
	for _, name := range places {
		require.NoError(t, f.Stop(t.Context(), name), "the last spans are sent at the end")
	}
	spans := traces.spans

	story := storyOf(spans, traceID)
	require.Equal(t, []string{"api: POST /orders", "api:   httpmw.Idempotency", "api:     create order", "consumer-0:       process order"}, story)
	require.True(t, slices.ContainsFunc(spans, func(s aSpan) bool {
		return s.process == "projector-0" && s.name == "send order" && slices.Contains(s.links, traceID)
	}), "what sends it, beside others, is linked to it")
	var lines []string
	for _, name := range places {
		for line := range strings.SplitSeq(f.Tail(name), "\n") {
			if strings.Contains(line, "trace_id="+traceID) && strings.Contains(line, "correlation_id=checkout-77") {
				lines = append(lines, name+": "+line)
			}
		}
	}
	require.Len(t, lines, 2, strings.Join(lines, "\n"))

	t.Log("\n" + strings.Join(append(story, lines...), "\n"))
	page, err := os.ReadFile("../../docs/tracing.md")
	require.NoError(t, err)
	for _, part := range [][]string{story, lines} {
		require.Contains(t, masked(string(page)), masked(strings.Join(part, "\n")))
	}
}

// masked leaves out what differs from run to run.
func masked(text string) string {
	text = regexp.MustCompile(`time=\S+`).ReplaceAllString(text, "time=")
	return regexp.MustCompile(`order=\S+`).ReplaceAllString(text, "order=")
}

// storyOf is the tree of a trace, a line for each span.
func storyOf(spans []aSpan, traceID string) (lines []string) {
	known := map[string]bool{}
	for _, s := range spans {
		known[s.span] = true
	}
	var tell func(parent, indent string)
	tell = func(parent, indent string) {
		for _, s := range spans {
			if s.trace != traceID || s.parent != parent && (parent != "" || known[s.parent]) {
				continue
			}
			lines = append(lines, s.process+": "+indent+s.name)
			tell(s.span, indent+"  ")
		}
	}
	tell("", "")
	return lines
}
