package status

import (
	"fmt"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
)

// course holds the latest values of some numbers, for small charts.
type course struct {
	backlog, age, recorded, left []float64
}

// courseWidth is how many values a chart shows.
const courseWidth = 60

// add appends the values of one reading and drops the oldest beyond courseWidth, so a status that runs for
// days needs no more memory.
func (c *course) add(i *Item) {
	add := func(to *[]float64, v *float64) {
		if v == nil {
			return
		}
		*to = append(*to, *v)
		*to = (*to)[max(0, len(*to)-courseWidth):]
	}
	backlog := float64(i.Outbox.Backlog)
	add(&c.backlog, &backlog)
	// The age is measured over all events. Beside a backlog of one tenant it would mislead.
	if !i.selects {
		add(&c.age, &i.Outbox.OldestAgeSeconds)
	}
	add(&c.recorded, i.Outbox.RecordedPerSecond)
	add(&c.left, i.Outbox.LeftPerSecond)
}

// rows returns a row with number and chart for each value. Values that are unknown, or not selected by the
// filter, have no row.
func (c *course) rows(i *Item) (rows [][]string) {
	add := func(name string, values []float64, now string) {
		if len(values) > 0 {
			rows = append(rows, []string{name, now, sparkline(values)})
		}
	}
	add("backlog", c.backlog, count(i.Outbox.Backlog))
	add("oldest", c.age, cli.Age(i.Outbox.OldestAgeSeconds))
	// Both rates are known or both are not: they come from the same two readings.
	if i.Outbox.RecordedPerSecond != nil {
		add("recorded", c.recorded, fmt.Sprintf("%.1f/s", *i.Outbox.RecordedPerSecond))
		add("left", c.left, fmt.Sprintf("%.1f/s", *i.Outbox.LeftPerSecond))
	}
	return rows
}

var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws a bar for each value, relative to the largest. Negative values are drawn as 0.
func sparkline(values []float64) string {
	var line strings.Builder
	most := slices.Max(values)
	for _, v := range values {
		step := 0
		if most > 0 {
			step = int(max(v, 0) / most * float64(len(bars)-1))
		}
		line.WriteRune(bars[step])
	}
	return line.String()
}
