package promtest

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// Family is a metric as Prometheus sees it.
type Family struct {
	// Series has the names of its series. Labels has its label names, alone and with each of their values.
	Series, Labels map[string]bool
	// Counted is the sum of a counter, or the number of values of a histogram, over all labels.
	Counted float64
	// Highest is the highest value of a gauge, over all labels; 0 if none is above 0.
	Highest float64
}

// Gather returns the metrics of oncebox, by their bare names.
func Gather(t testing.TB, from prometheus.Gatherer) map[string]Family {
	t.Helper()
	families, err := from.Gather()
	require.NoError(t, err)
	shown := map[string]Family{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "oncebox_") {
			continue
		}
		is := Family{Series: map[string]bool{f.GetName(): true}, Labels: map[string]bool{}}
		for _, m := range f.GetMetric() {
			is.Counted += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			is.Highest = max(is.Highest, m.GetGauge().GetValue())
			for _, b := range m.GetHistogram().GetBucket() {
				is.Labels[fmt.Sprint("le=", b.GetUpperBound())] = true
			}
			if m.GetHistogram() != nil {
				is.Series = map[string]bool{f.GetName() + "_bucket": true, f.GetName() + "_count": true, f.GetName() + "_sum": true}
			}
			for _, l := range m.GetLabel() {
				is.Labels[l.GetName()+"="+l.GetValue()], is.Labels[l.GetName()] = true, true
			}
		}
		require.NotContains(t, shown, Bare(f.GetName()))
		shown[Bare(f.GetName())] = is
	}
	return shown
}

// Documented returns the bare names of the metrics that a page lists.
func Documented(t testing.TB, page string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(page) //nolint:gosec // a page of this repository
	require.NoError(t, err)
	for _, row := range regexp.MustCompile("(?m)^\\| `(oncebox\\.[a-z._]+)`").FindAllStringSubmatch(string(text), -1) {
		names = append(names, strings.ReplaceAll(row[1], ".", "_"))
	}
	require.NotEmpty(t, names)
	return names
}

// Bare removes from a name the unit and suffix that Prometheus adds.
func Bare(name string) string {
	for _, suffix := range []string{"_bucket", "_count", "_sum", "_total", "_seconds"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}
