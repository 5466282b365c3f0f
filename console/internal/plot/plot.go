package plot

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/oncebox/oncebox/console/internal/words"
)

// The size of a column of a plot and the height of a plot, in units of the picture. The stylesheet sets the size on the page: a picture is as wide as its
// place, so the texts of the axes stand beside it and keep their size.
const (
	columnWidth = 10
	plotHeight  = 100
)

// Plot is a picture of numbers over time, as inline SVG without script: lines or bars, the present on the right. All pictures of numbers are plots.
type Plot struct {
	// Name is the heading, and Unit says what the numbers are.
	Name, Unit string
	// Bars: the numbers are drawn as bars, one upon the other. Otherwise they are lines.
	Bars bool
	// Series are the numbers, of one kind each, for as many columns as Columns.
	Series []Series

	from   time.Time
	step   time.Duration // the time of a column
	number func(v float64) string
	scale  func(highest float64) (top float64)
}

// Series are the numbers of one kind.
type Series struct {
	// Name is what the numbers count, as in "3 dead", and Class the class in the stylesheet.
	Name, Class string
	// Values has a number for each column. NaN: it is not known.
	Values []float64
}

// New returns a plot without numbers over the span that ends now. Columns begin at whole steps.
func New(name, unit string, now time.Time, span, step time.Duration) *Plot {
	from := now.Add(-span).Truncate(step).Add(step)
	return &Plot{Name: name, Unit: unit, from: from, step: step, number: wholeNumber, scale: roundNumber}
}

// Add adds a series of unknown numbers, and returns it.
func (p *Plot) Add(name, class string, columns int) *Series {
	s := Series{Name: name, Class: class, Values: make([]float64, columns)}
	for n := range s.Values {
		s.Values[n] = math.NaN()
	}
	p.Series = append(p.Series, s)
	return &p.Series[len(p.Series)-1]
}

// column returns the column of a time. It is outside of the plot if it is negative or not less than the number of columns.
func (p *Plot) column(at time.Time) int {
	return int(math.Floor(float64(at.Sub(p.from)) / float64(p.step)))
}

// Count adds one to the number of a time. A time outside of the plot is not counted.
func (p *Plot) Count(at time.Time) {
	if n := p.column(at); n >= 0 && n < p.Columns() {
		p.Series[0].Values[n]++
	}
}

// Columns returns the number of columns.
func (p *Plot) Columns() int { return len(p.Series[0].Values) }

// Width and Height are the size of the picture, in its units.
func (p *Plot) Width() int  { return p.Columns() * columnWidth }
func (p *Plot) Height() int { return plotHeight }

// top returns the number at the upper end of the axis.
func (p *Plot) top() float64 {
	highest := 0.0
	for n := range p.Columns() {
		sum := 0.0
		for _, s := range p.Series {
			switch v := s.Values[n]; {
			case math.IsNaN(v):
			case p.Bars:
				sum += v
			default:
				sum = max(sum, v)
			}
		}
		highest = max(highest, sum)
	}
	return p.scale(highest)
}

// Levels returns the texts of the vertical axis, from above.
func (p *Plot) Levels() []string {
	top := p.top()
	return []string{p.number(top), p.number(top / 2), p.number(0)}
}

// quarters is how many parts the texts of the time axis divide it into.
const quarters = 4

// Times returns the texts of the time axis, evenly spaced.
func (p *Plot) Times() (list []string) {
	whole := time.Duration(p.Columns()) * p.step
	for n := range quarters + 1 {
		list = append(list, clock(p.from.Add(whole*time.Duration(n)/quarters)))
	}
	return list
}

// Known reports whether the plot has any number.
func (p *Plot) Known() bool {
	for n := range p.Columns() {
		if p.known(n) {
			return true
		}
	}
	return false
}

func (p *Plot) known(column int) bool {
	for _, s := range p.Series {
		if !math.IsNaN(s.Values[column]) {
			return true
		}
	}
	return false
}

// Curve is a line of a plot, or the bars of a series, as the path of SVG.
type Curve struct{ Class, Path string }

// Curves returns what is drawn, in the order of the series.
func (p *Plot) Curves() (list []Curve) {
	top, below := p.top(), make([]float64, p.Columns())
	for _, s := range p.Series {
		var path strings.Builder
		for n, v := range s.Values {
			switch {
			case math.IsNaN(v):
			case p.Bars:
				bar(&path, n, below[n], v, top)
				below[n] += v
			default:
				line(&path, n, v, n == 0 || math.IsNaN(s.Values[n-1]), top)
			}
		}
		list = append(list, Curve{s.Class, path.String()})
	}
	return list
}

// bar draws one bar on top of the bars below it. A number above 0 is never invisible.
func bar(path *strings.Builder, column int, below, v, top float64) {
	if v <= 0 {
		return
	}
	foot, head := height(below, top), height(below+v, top)
	if foot-head < 3 {
		head = max(foot-3, 0)
	}
	fmt.Fprintf(path, "M%d %sH%dV%sH%dZ", column*columnWidth+1, decimal(foot), (column+1)*columnWidth-1, decimal(head), column*columnWidth+1)
}

// line draws a number as a step of a line: what was read is true for its column, and nothing is drawn between numbers with a gap between them.
func line(path *strings.Builder, column int, v float64, begins bool, top float64) {
	how := "V"
	if begins {
		how = fmt.Sprintf("M%d ", column*columnWidth)
	}
	fmt.Fprintf(path, "%s%sH%d", how, decimal(height(v, top)), (column+1)*columnWidth)
}

// height returns the vertical place of a number.
func height(v, top float64) float64 { return plotHeight - v/top*plotHeight }

func decimal(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }

// Area is a part of the picture that says its numbers when a pointer is on it.
type Area struct {
	X, Width int
	// Gap: the numbers are not known.
	Gap   bool
	Title string
}

// Areas returns an area for each column, and one for each gap.
func (p *Plot) Areas() (list []Area) {
	for n := 0; n < p.Columns(); n++ {
		if p.known(n) {
			list = append(list, Area{X: n * columnWidth, Width: columnWidth, Title: p.at(n) + ": " + p.numbers(n)})
			continue
		}
		first, end := n, p.over()
		if n >= end {
			break // nothing is drawn for time that is not over
		}
		for n+1 < end && !p.known(n+1) {
			n++
		}
		list = append(list, Area{
			X: first * columnWidth, Width: (n + 1 - first) * columnWidth, Gap: true,
			Title: p.at(first) + " to " + p.at(n+1) + ": not known, no process read it",
		})
	}
	return list
}

// over returns the number of columns whose time is over. The last one ends in the future, and its numbers may not have been read yet.
func (p *Plot) over() int { return p.Columns() - 1 }

// at returns the time of day at which a column begins.
func (p *Plot) at(column int) string {
	return clock(p.from.Add(time.Duration(column) * p.step))
}

// numbers returns the known numbers of a column with their names.
func (p *Plot) numbers(column int) string {
	var parts []string
	for _, s := range p.Series {
		if v := s.Values[column]; !math.IsNaN(v) {
			parts = append(parts, p.number(v)+" "+s.Name)
		}
	}
	return strings.Join(parts, ", ")
}

// Latest returns the number of the last column that is known, with the time if that is not the present, and the highest number with its time.
func (p *Plot) Latest(s *Series) (latest, highest string) {
	last, most := -1, -1
	for n, v := range s.Values {
		if math.IsNaN(v) {
			continue
		}
		last = n
		if most < 0 || v > s.Values[most] {
			most = n
		}
	}
	if last < 0 {
		return "not known", "–"
	}
	latest = p.number(s.Values[last])
	if last < p.Columns()-2 { // the present column may have no reading yet
		latest += " at " + p.at(last)
	}
	return latest, p.number(s.Values[most]) + " at " + p.at(most)
}

// Figures returns the numbers of the picture in words.
func (p *Plot) Figures() (list []Figure) {
	for n := range p.Series {
		s := &p.Series[n]
		latest, highest := p.Latest(s)
		list = append(list, Figure{s.Name, s.Class, latest, highest})
	}
	return list
}

// Figure is a series in words.
type Figure struct{ Name, Class, Latest, Highest string }

// Scale says how high the bars are, for a plot without texts at its axes.
func (p *Plot) Scale() string {
	return "a full bar: " + p.number(p.top()) + " in " + words.Short(p.step)
}

// Text returns the alternative text of the picture.
func (p *Plot) Text() string {
	var parts []string
	for n, f := range p.Figures() {
		if p.Bars {
			parts = append(parts, p.number(p.Series[n].sum())+" "+f.Name)
		} else {
			parts = append(parts, f.Name+": last "+f.Latest+", at most "+f.Highest)
		}
	}
	if gaps := p.gaps(); gaps > 0 {
		parts = append(parts, "not known for "+words.Short(gaps))
	}
	return p.Name + ". " + strings.Join(parts, "; ") + "."
}

// sum returns the sum of the known numbers.
func (s *Series) sum() (sum float64) {
	for _, v := range s.Values {
		if !math.IsNaN(v) {
			sum += v
		}
	}
	return sum
}

// gaps returns the time for which no number is known, between the first known number and the present.
func (p *Plot) gaps() (sum time.Duration) {
	begun, since := false, time.Duration(0)
	for n := range p.Columns() {
		switch {
		case p.known(n):
			sum, since, begun = sum+since, 0, true
		case begun:
			since += p.step
		}
	}
	if since > p.step { // the present column may have no reading yet
		sum += since
	}
	return sum
}
