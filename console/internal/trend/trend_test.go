package trend_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/console/internal/trend"
	"github.com/oncebox/oncebox/operator"
)

// A trend needs several minutes that agree with each other and with the present number. A rate needs minutes that are alike.
func TestTrends(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 5, 45, 20, 0, time.UTC)
	for name, c := range map[string]struct {
		minutes [4]int64
		present int64
		want    trend.Trend
		left    time.Duration
	}{
		"nothing":                 {[4]int64{}, 0, trend.Trend{Word: trend.Steady}, 0},
		"about the same":          {[4]int64{1000, 1020, 990, 1010}, 1000, trend.Trend{Word: trend.Steady}, 0},
		"evenly up":               {[4]int64{1000, 4000, 7000, 10_000}, 10_000, trend.Trend{Word: trend.Rising, PerSecond: 50}, 0},
		"evenly down":             {[4]int64{24_000, 21_000, 18_000, 15_000}, 12_000, trend.Trend{Word: trend.Falling, PerSecond: 50}, 4 * time.Minute},
		"a flood begins":          {[4]int64{0, 0, 0, 3000}, 9000, trend.Trend{Word: trend.Rising}, 0},
		"one jump":                {[4]int64{1000, 1000, 1000, 4000}, 4020, trend.Trend{}, 0},
		"one jump down":           {[4]int64{4000, 4000, 1000, 1000}, 1000, trend.Trend{}, 0},
		"up and down":             {[4]int64{1000, 3000, 2000, 4000}, 5000, trend.Trend{}, 0},
		"it fell, and grows now":  {[4]int64{9000, 7000, 5000, 3000}, 4000, trend.Trend{}, 0},
		"down, in unequal steps":  {[4]int64{9000, 8700, 5000, 4000}, 3500, trend.Trend{Word: trend.Falling}, 0},
		"a minute is not known":   {[4]int64{9000, operator.Unknown, 5000, 3000}, 1000, trend.Trend{}, 0},
		"the last is not known":   {[4]int64{9000, 7000, 5000, operator.Unknown}, 1000, trend.Trend{}, 0},
		"small numbers are noise": {[4]int64{1, 0, 2, 1}, 2, trend.Trend{Word: trend.Steady}, 0},
	} {
		h := &operator.History{Figures: []operator.Figures{{At: now.Truncate(time.Minute).Add(-10 * time.Minute), Span: 10 * time.Minute, Waiting: 7}}}
		for n, waiting := range c.minutes {
			h.Figures = append(h.Figures, operator.Figures{
				At: now.Truncate(time.Minute).Add(time.Duration(n-4) * time.Minute), Span: time.Minute, Waiting: waiting,
			})
		}
		h.Figures = append(h.Figures, operator.Figures{At: now.Truncate(time.Minute), Span: time.Minute, Waiting: 50_000})
		got := trend.Of(h, c.present, now)
		require.Equal(t, c.want, got, name)
		require.Equal(t, c.left, got.Left(c.present), name)
		require.Empty(t, trend.Of(h, c.present, now.Add(2*time.Minute)), "nobody has read it lately: "+name)
	}
}
