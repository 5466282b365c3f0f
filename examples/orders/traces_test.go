//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/examples/orders/shop"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

// aSpan is what the exporter writes of one.
type aSpan struct {
	Name                string
	SpanContext, Parent struct{ TraceID, SpanID string }
	Links               []struct{ SpanContext struct{ TraceID string } }
	process             string
}

// A request to one process, the event that another one publishes and the handler in a third are one trace, and the lines that they log have its
// id. docs/tracing.md shows the same.
func TestOneRequestIsOneTraceOverProcesses(t *testing.T) {
	db, ns := pgtest.Open(t), pulsartest.Open(t)
	folder := t.TempDir()
	common := []string{
		"ONCEBOX_SCHEMA=" + db.Schema, "ONCEBOX_PULSAR_URL=" + ns.URL, "ONCEBOX_PULSAR_ADMIN_URL=" + ns.AdminURL,
		"ONCEBOX_PULSAR_NAMESPACE=" + strings.TrimPrefix(ns.Name, "public/"),
	}
	f, err := kills.OpenFleet(pgtest.URL(t), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	places := []string{"api", "projector-0", "consumer-0"}
	for _, name := range places {
		f.Env = append(slices.Clone(common), shop.TracesVariable+"="+filepath.Join(folder, name))
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
	var spans []aSpan
	for _, name := range places {
		require.NoError(t, f.Stop(t.Context(), name), "spans are written at the end")
		spans = append(spans, readSpans(t, filepath.Join(folder, name))...)
	}

	story := storyOf(spans, traceID)
	require.Equal(t, []string{"api: POST /orders", "api:   httpmw.Idempotency", "api:     create order", "consumer-0:       process order"}, story)
	require.True(t, slices.ContainsFunc(spans, func(s aSpan) bool {
		return s.process == "projector-0" && s.Name == "send order" && s.Links[0].SpanContext.TraceID == traceID
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

func readSpans(t *testing.T, path string) (spans []aSpan) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	for decoder := json.NewDecoder(file); ; {
		var s aSpan
		err := decoder.Decode(&s) //nolint:musttag // the exporter names them as the fields
		if errors.Is(err, io.EOF) {
			return spans
		}
		require.NoError(t, err)
		s.process = filepath.Base(path)
		spans = append(spans, s)
	}
}

// storyOf is the tree of a trace, a line for each span.
func storyOf(spans []aSpan, traceID string) (lines []string) {
	known := map[string]bool{}
	for _, s := range spans {
		known[s.SpanContext.SpanID] = true
	}
	var tell func(parent, indent string)
	tell = func(parent, indent string) {
		for _, s := range spans {
			if s.SpanContext.TraceID != traceID || s.Parent.SpanID != parent && (parent != "" || known[s.Parent.SpanID]) {
				continue
			}
			lines = append(lines, s.process+": "+indent+s.Name)
			tell(s.SpanContext.SpanID, indent+"  ")
		}
	}
	tell("", "")
	return lines
}
