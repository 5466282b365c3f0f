package rulestest_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// file is a file of tests as promtool reads it: what is used of the format, and nothing that promtool does not know.
type file struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	GroupEvalOrder     []string       `yaml:"group_eval_order"`
	Tests              []group        `yaml:"tests"`
}

// group is a set of series, and what is expected of the rules over them.
type group struct {
	Name        string         `yaml:"name"`
	Interval    model.Duration `yaml:"interval"`
	InputSeries []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	AlertTests []alertTest `yaml:"alert_rule_test"`
	ExprTests  []exprTest  `yaml:"promql_expr_test"`
}

// alertTest names the alerts that fire at a time. Others of the same name must not.
type alertTest struct {
	EvalTime  model.Duration `yaml:"eval_time"`
	Alertname string         `yaml:"alertname"`
	ExpAlerts []struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	} `yaml:"exp_alerts"`
}

// exprTest is what a query finds at a time.
type exprTest struct {
	Expr       string         `yaml:"expr"`
	EvalTime   model.Duration `yaml:"eval_time"`
	ExpSamples []struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	} `yaml:"exp_samples"`
}

func readFile(t *testing.T, path string) *file {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	f := &file{EvaluationInterval: model.Duration(time.Minute)}
	require.NoError(t, decoder.Decode(f), path)
	for i, rules := range f.RuleFiles {
		f.RuleFiles[i] = filepath.Join(filepath.Dir(path), rules)
	}
	for i := range f.Tests {
		if f.Tests[i].Interval == 0 {
			f.Tests[i].Interval = f.EvaluationInterval
		}
	}
	return f
}

// load returns the series in the notation of Prometheus's own tests.
func (g *group) load() string {
	var b strings.Builder
	fmt.Fprintf(&b, "load %s\n", g.Interval)
	for _, s := range g.InputSeries {
		fmt.Fprintf(&b, "  %s %s\n", s.Series, s.Values)
	}
	return b.String()
}

// end is the last time at which something is expected.
func (g *group) end() (last model.Duration) {
	for _, a := range g.AlertTests {
		last = max(last, a.EvalTime)
	}
	for _, e := range g.ExprTests {
		last = max(last, e.EvalTime)
	}
	return last
}
