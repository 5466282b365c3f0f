package oncebox_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// expressions returns the queries of the rules and of the dashboard, by their file.
func expressions(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	require.NoError(t, filepath.WalkDir("docs/alerts", func(path string, entry fs.DirEntry, err error) error {
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
func requireShown(t *testing.T, shown map[string]family, path, expr string) {
	t.Helper()
	labels := map[string]bool{}
	for _, label := range given {
		labels[label] = true
	}
	for _, name := range regexp.MustCompile(`\boncebox_\w+`).FindAllString(expr, -1) {
		metric := shown[bare(name)]
		require.Contains(t, metric.series, name, "%s: %s", path, expr)
		maps.Copy(labels, metric.labels)
	}
	for _, by := range regexp.MustCompile(`by \(([^)]+)\)`).FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(by[1], ",") {
			require.Contains(t, labels, strings.TrimSpace(label), "%s: %s", path, expr)
		}
	}
	for _, is := range regexp.MustCompile(`(\w+)="(\w+)"`).FindAllStringSubmatch(expr, -1) {
		if !slices.Contains(given, is[1]) && !strings.HasPrefix(expr, "ALERTS") {
			require.Contains(t, labels, is[1]+"="+is[2], "%s: %s", path, expr)
		}
	}
}
