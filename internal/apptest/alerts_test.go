package apptest_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/oncebox/oncebox/internal/promtest"
	"github.com/oncebox/oncebox/projector"
)

// Each alert leads to its entry in the runbook, which says what it means, where to look and what to do, and has a row in docs/testing.md. There is no
// entry of an alert that is gone.
func TestEachAlertHasAnEntryInTheRunbook(t *testing.T) {
	page, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	entries := map[string]string{}
	for _, section := range regexp.MustCompile(`(?m)^##+ `).Split(string(page), -1) {
		title, text, _ := strings.Cut(section, "\n")
		if strings.HasPrefix(title, "Oncebox") {
			entries[title] = text
		}
	}
	tests, err := os.ReadFile("../../docs/testing.md")
	require.NoError(t, err)
	files, err := filepath.Glob("../../docs/alerts/*.rules.yml")
	require.NoError(t, err)
	const url = "https://github.com/oncebox/oncebox/blob/main/docs/runbook.md#"
	var alerts, rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(Oncebox\\w+)` \\|").FindAllStringSubmatch(string(tests), -1) {
		rows = append(rows, row[1])
	}
	for _, alert := range alertsOf(t, files) {
		alerts = append(alerts, alert.Alert)
		require.Equal(t, url+strings.ToLower(alert.Alert), alert.Annotations["runbook_url"], "the anchor of a heading is in lower case")
		require.NotEmpty(t, alert.Annotations["summary"], alert.Alert)
		require.NotEmpty(t, alert.Annotations["description"], alert.Alert)
		require.Contains(t, []string{"critical", "warning"}, alert.Labels["severity"], alert.Alert)
		require.Regexp(t, "(?s)\\*\\*Meaning\\*\\*: .*\\*\\*Look at\\*\\*: .*\\*\\*Do\\*\\*: ", entries[alert.Alert], alert.Alert)
		require.Contains(t, entries[alert.Alert], "`oncebox ", "%s: a command", alert.Alert)
	}
	require.ElementsMatch(t, alerts, slices.Collect(maps.Keys(entries)))
	require.ElementsMatch(t, alerts, rows, "../../docs/testing.md")
}

// An event that was refused as often as an alert says has not become a dead letter by then, with the default number of tries.
func TestAlertsCanFireWithTheDefaults(t *testing.T) {
	most := (&projector.Config{}).WithDefaults().MaxRetryAttempts
	var found [][]string
	for _, expr := range expressions(t)["../../docs/alerts/oncebox.rules.yml"] {
		found = append(found, regexp.MustCompile(`oncebox_outbox_max_tries\) > (\d+)$`).FindAllStringSubmatch(expr, -1)...)
	}
	require.NotEmpty(t, found)
	for _, limit := range found {
		n, err := strconv.Atoi(limit[1])
		require.NoError(t, err)
		require.Less(t, n+1, most, "it is dead before")
	}
}

// alert is a rule as Prometheus reads it.
type alert struct {
	Alert       string            `yaml:"alert"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alertsOf(t *testing.T, files []string) (alerts []alert) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var rules struct {
			Groups []struct {
				Rules []alert `yaml:"rules"`
			} `yaml:"groups"`
		}
		require.NoError(t, yaml.Unmarshal(text, &rules))
		for _, group := range rules.Groups {
			for _, rule := range group.Rules {
				if rule.Alert != "" { // others are recording rules
					alerts = append(alerts, rule)
				}
			}
		}
	}
	require.NotEmpty(t, alerts)
	return alerts
}

// expressions returns the queries of the rules and of the dashboard, by their file.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	require.NoError(t, filepath.WalkDir("../../docs/alerts", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".rules.yml") && !strings.HasSuffix(path, ".json") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var file any // JSON is YAML as well
		if err := yaml.Unmarshal(text, &file); err != nil {
			return err
		}
		found[path] = exprsOf(file, nil)
		return nil
	}))
	require.NotEmpty(t, found)
	return found
}

// exprsOf returns all that is named expr, anywhere below node.
func exprsOf(node any, found []string) []string {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			if expr, ok := value.(string); ok && key == "expr" {
				found = append(found, expr)
			}
			found = exprsOf(value, found)
		}
	case []any:
		for _, value := range node {
			found = exprsOf(value, found)
		}
	}
	return found
}

// given are the labels that the scrape adds, and the one of the buckets.
var given = []string{"job", "instance", "le"}

// requireShown checks that the metrics of a query are shown, and that each label that it names is one of theirs.
func requireShown(t *testing.T, shown map[string]promtest.Family, path, expr string) {
	t.Helper()
	labels := map[string]bool{}
	for _, label := range given {
		labels[label] = true
	}
	for _, name := range regexp.MustCompile(`\boncebox_\w+`).FindAllString(expr, -1) {
		metric := shown[promtest.Bare(name)]
		require.Contains(t, metric.Series, name, "%s: %s", path, expr)
		maps.Copy(labels, metric.Labels)
	}
	for _, by := range regexp.MustCompile(`by \(([^)]+)\)`).FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(by[1], ",") {
			require.Contains(t, labels, strings.TrimSpace(label), "%s: %s", path, expr)
		}
	}
	for _, bound := range regexp.MustCompile(`le=~"([0-9]+)`).FindAllStringSubmatch(expr, -1) {
		require.Contains(t, labels, "le="+bound[1], "%s: %s", path, expr)
	}
	for _, is := range regexp.MustCompile(`(\w+)="(\w+)"`).FindAllStringSubmatch(expr, -1) {
		if !slices.Contains(given, is[1]) && !strings.HasPrefix(expr, "ALERTS") {
			require.Contains(t, labels, is[1]+"="+is[2], "%s: %s", path, expr)
		}
	}
}
