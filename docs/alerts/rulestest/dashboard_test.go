package rulestest_test

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/metricstest/service"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/promtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

func TestMain(m *testing.M) { pgtest.Main(m, pulsartest.Stop) }

// load is the consumer, the topic and the outcome of the values that are known.
const load = "known"

// Each panel of the dashboard, evaluated by Prometheus over what a running service shows, has data. Each quantile is that of a known load: of a
// thousand values of 9 ms and a hundred of 150 ms, between the bounds of a histogram that are next to the true value.
func TestDashboardOverARunningService(t *testing.T) {
	running := service.Run(t, promtest.Documented(t, "../../metrics.md"))
	seconds := append(slices.Repeat([]float64{.009}, 1000), slices.Repeat([]float64{.15}, 100)...)
	counts := append(slices.Repeat([]int64{2}, 1000), slices.Repeat([]int64{8}, 100)...)
	work := func() {
		running.Work()
		running.Load(t.Context(), load, seconds, counts)
	}
	store := teststorage.New(t)
	for minute := range 5 { // a rate has to see a series twice
		work()
		scrape(t, store, running.Registry, time.Duration(minute)*time.Minute)
	}
	engine := promqltest.NewTestEngine(t, false, 5*time.Minute, 1_000_000)
	quantiles := 0
	for _, expr := range panels(t) {
		query, err := engine.NewInstantQuery(t.Context(), store, nil, filled(expr), time.Unix(4*60, 0))
		require.NoError(t, err, expr)
		result := query.Exec(t.Context())
		require.NoError(t, result.Err, expr)
		found, err := result.Vector()
		require.NoError(t, err, expr)
		found = slices.DeleteFunc(found, func(s promql.Sample) bool { return math.IsNaN(s.F) })
		require.NotEmpty(t, found, "no data: %s", expr)
		if q := regexp.MustCompile(`histogram_quantile\(([0-9.]+)`).FindStringSubmatch(expr); q != nil {
			quantiles++
			requireKnown(t, expr, q[1], found)
		}
		query.Close()
	}
	require.NotZero(t, quantiles)
}

// requireKnown checks a quantile of the load.
func requireKnown(t *testing.T, expr, of string, found promql.Vector) {
	t.Helper()
	q, err := strconv.ParseFloat(of, 64)
	require.NoError(t, err)
	low, high := .005, .01 // the bounds next to 9 ms
	if q > 1000.0/1100 {
		low, high = .1, .25
	}
	if !strings.Contains(expr, "_seconds_bucket") {
		low, high = 0, 2
		if q > 1000.0/1100 {
			low, high = 5, 10
		}
	}
	seen := false
	for _, s := range found {
		for _, name := range []string{"consumer", "outcome"} {
			if is := s.Metric.Get(name); is != "" && is != load {
				s.F = -1 // another one's
			}
		}
		if s.F >= 0 {
			seen = true
			require.Greater(t, s.F, low, expr)
			require.LessOrEqual(t, s.F, high, expr)
		}
	}
	require.True(t, seen, expr)
}

// scrape stores what a service shows, as Prometheus does.
func scrape(t *testing.T, to *teststorage.TestStorage, from prometheus.Gatherer, at time.Duration) {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.Time(at.Milliseconds())}, families...)
	require.NoError(t, err)
	app := to.Appender(t.Context())
	for _, s := range samples {
		series := map[string]string{"job": "orders", "instance": "a"}
		for name, value := range s.Metric {
			series[string(name)] = string(value)
		}
		_, err := app.Append(0, labels.FromMap(maps.Clone(series)), int64(s.Timestamp), float64(s.Value))
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
}

// panels returns the queries of the dashboard's panels.
func panels(t *testing.T) (exprs []string) {
	t.Helper()
	text, err := os.ReadFile("../oncebox-dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			exprs = append(exprs, target.Expr)
		}
	}
	require.NotEmpty(t, exprs)
	return exprs
}

// filled is a query as Grafana sends it: all jobs, over four minutes.
func filled(expr string) string {
	return strings.NewReplacer("$job", ".*", "$__rate_interval", "4m").Replace(expr)
}
