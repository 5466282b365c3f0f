package rulestest_test

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/require"
)

// The alerts behave as their tests expect, evaluated by Prometheus itself.
func TestAlerts(t *testing.T) {
	for _, path := range testFiles(t) {
		f := readFile(t, path)
		for i := range f.Tests {
			t.Run(filepath.Base(path)+"/"+f.Tests[i].Name, func(t *testing.T) { run(t, f, &f.Tests[i]) })
		}
	}
}

// Each alert is seen to fire, and in the same test to be gone afterwards; and none is tested that is not there.
func TestEachAlertFiresAndClears(t *testing.T) {
	tested, alerts := map[string]bool{}, map[string]bool{}
	for _, path := range testFiles(t) {
		f := readFile(t, path)
		for name := range alertsOf(t, f.RuleFiles...) {
			alerts[name] = true
		}
		for _, g := range f.Tests {
			for _, name := range clears(g.AlertTests) {
				tested[name] = true
			}
		}
	}
	require.NotEmpty(t, alerts)
	require.ElementsMatch(t, slices.Collect(maps.Keys(alerts)), slices.Collect(maps.Keys(tested)))
}

// No file of rules is left out.
func TestEachFileOfRulesIsTested(t *testing.T) {
	there, err := filepath.Glob("../*.rules.yml")
	require.NoError(t, err)
	require.NotEmpty(t, there)
	var tested []string
	for _, path := range testFiles(t) {
		tested = append(tested, readFile(t, path).RuleFiles...)
	}
	require.ElementsMatch(t, there, tested)
}

func testFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../*_test.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// clears returns the alerts that fire, and later do not.
func clears(tests []alertTest) (names []string) {
	fired := map[string]bool{}
	slices.SortStableFunc(tests, func(a, b alertTest) int { return int(a.EvalTime/1e9) - int(b.EvalTime/1e9) })
	for _, a := range tests {
		if len(a.ExpAlerts) == 0 && fired[a.Alertname] {
			names = append(names, a.Alertname)
		}
		fired[a.Alertname] = len(a.ExpAlerts) > 0
	}
	return names
}

// loadRules returns the groups of the files, in the order of their names' places in order.
func loadRules(t *testing.T, opts *rules.ManagerOptions, interval model.Duration, order []string, files ...string) []*rules.Group {
	t.Helper()
	opts.Logger, opts.Parser, opts.Context = promslog.NewNopLogger(), parser.NewParser(parser.Options{}), t.Context()
	byKey, errs := rules.NewManager(opts).LoadGroups(time.Duration(interval), labels.EmptyLabels(), "", nil, false, files...)
	require.Empty(t, errs)
	return slices.SortedFunc(maps.Values(byKey), func(a, b *rules.Group) int {
		return slices.Index(order, a.Name()) - slices.Index(order, b.Name())
	})
}

func alertsOf(t *testing.T, files ...string) map[string]*rules.AlertingRule {
	t.Helper()
	alerts := map[string]*rules.AlertingRule{}
	for _, g := range loadRules(t, &rules.ManagerOptions{}, model.Duration(time.Minute), nil, files...) {
		for _, r := range g.Rules() {
			if alert, ok := r.(*rules.AlertingRule); ok {
				require.NotContains(t, alerts, alert.Name(), "two alerts of one name")
				alerts[alert.Name()] = alert
			}
		}
	}
	return alerts
}

// run evaluates the rules every interval, from 0 to the last time at which something is expected, as promtool does: what is expected at
// a time between two evaluations is compared with the one before.
func run(t *testing.T, f *file, g *group) {
	t.Helper()
	loader, err := promqltest.NewLazyLoader(g.load(), promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, loader.Close()) }()
	every := time.Duration(f.EvaluationInterval)
	loader.SubqueryInterval = every
	query := rules.EngineQueryFunc(loader.QueryEngine(), loader.Storage())
	groups := loadRules(t, &rules.ManagerOptions{
		QueryFunc: query, AppendableV2: loader.Storage(), NotifyFunc: notifyNobody,
	}, g.Interval, f.GroupEvalOrder, f.RuleFiles...)
	for _, r := range allRules(groups) {
		if alert, ok := r.(*rules.AlertingRule); ok {
			alert.SetRestored(true) // there is nothing to restore
		}
	}
	start := time.Unix(0, 0).UTC()
	for now := time.Duration(0); now <= time.Duration(g.end()); now += every {
		loader.WithSamplesTill(start.Add(now), func(err error) { require.NoError(t, err) })
		for _, group := range groups {
			group.Eval(t.Context(), start.Add(now))
		}
		for _, r := range allRules(groups) {
			require.NoError(t, r.LastError(), r.Name())
		}
		for _, test := range g.AlertTests {
			if at := time.Duration(test.EvalTime); now <= at && at < now+every {
				requireFiring(t, groups, &test)
			}
		}
	}
	for _, test := range g.ExprTests {
		found, err := query(t.Context(), test.Expr, start.Add(time.Duration(test.EvalTime)))
		require.NoError(t, err, test.Expr)
		got := map[string]float64{}
		for _, sample := range found {
			got[sample.Metric.String()] = sample.F
		}
		expected := map[string]float64{}
		for _, sample := range test.ExpSamples {
			metric, err := parser.NewParser(parser.Options{}).ParseMetric(sample.Labels)
			require.NoError(t, err)
			expected[metric.String()] = sample.Value
		}
		require.Equal(t, expected, got, "%s at %s", test.Expr, test.EvalTime)
	}
}

func notifyNobody(context.Context, string, ...*rules.Alert) {}

func allRules(groups []*rules.Group) (all []rules.Rule) {
	for _, g := range groups {
		all = append(all, g.Rules()...)
	}
	return all
}

// firing is an alert as a test names it.
type firing struct{ labels, annotations map[string]string }

func requireFiring(t *testing.T, groups []*rules.Group, test *alertTest) {
	t.Helper()
	var expected, got []firing
	for _, a := range test.ExpAlerts {
		all := map[string]string{labels.AlertName: test.Alertname}
		maps.Copy(all, a.Labels)
		expected = append(expected, firing{all, a.Annotations})
	}
	for _, r := range allRules(groups) {
		alert, ok := r.(*rules.AlertingRule)
		if !ok || alert.Name() != test.Alertname {
			continue
		}
		for _, a := range alert.ActiveAlerts() {
			if a.State == rules.StateFiring {
				got = append(got, firing{a.Labels.Map(), a.Annotations.Map()})
			}
		}
	}
	require.ElementsMatch(t, expected, got, "%s at %s", test.Alertname, test.EvalTime)
}
