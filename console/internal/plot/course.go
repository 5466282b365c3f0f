package plot

import (
	"maps"
	"slices"
	"time"

	"github.com/oncebox/oncebox/operator"
)

// Course draws how the figures of the outbox, or of a consumer, went.
type Course struct {
	Span    Span
	Now     time.Time
	History operator.History
	// Consumers has the histories of the consumers, for the plots of an outbox.
	Consumers map[string]operator.History
}

// Plots returns the plots of an outbox: what waits and for how long, what comes and goes, and what fails, at consumers too.
func (c *Course) Plots() []*Plot {
	backlog := c.plot("Events waiting", "events", c.Span.step)
	c.highest(backlog, "wait", "", func(f *operator.Figures) (float64, bool) { return float64(f.Waiting), f.Waiting != operator.Unknown })
	age := c.plot("Oldest that waits", "age", c.Span.step)
	age.number, age.scale = inSeconds, roundSeconds
	c.highest(age, "old", "", func(f *operator.Figures) (float64, bool) { return f.Oldest.Seconds(), f.Known() })
	rates := c.plot("Stored and published", "events per second", c.Span.step)
	rates.number, rates.scale = PerSecond, roundRate
	c.rate(rates, "stored", "second", func(f *operator.Figures) int64 { return f.Came })
	c.rate(rates, "published", "", func(f *operator.Figures) int64 { return f.Went })
	failures := c.plot("Failing and dead", "events and ordering keys", c.Span.step)
	failing := func(f *operator.Figures) (float64, bool) { return float64(f.Failing), f.Failing != operator.Unknown }
	c.highest(failures, "events that the broker refuses", "second", failing)
	consumers := slices.Collect(maps.Values(c.Consumers))
	(&Course{Span: c.Span, Now: c.Now, History: sum(consumers)}).highest(failures, "ordering keys that fail at consumers", "warn", failing)
	all := &Course{Span: c.Span, Now: c.Now, History: sum(append(consumers, c.History))}
	all.highest(failures, "dead letters", "bad", func(f *operator.Figures) (float64, bool) { return float64(f.Dead), f.Known() })
	return []*Plot{backlog, age, rates, failures}
}

// OfConsumer returns the plots of a consumer: what it handles and what fails, what waits, and what does not flow.
func (c *Course) OfConsumer() []*Plot {
	rates := c.plot("Handled and failed", "messages per second", c.Span.step)
	rates.number, rates.scale = PerSecond, roundRate
	c.rate(rates, "handled", "", func(f *operator.Figures) int64 { return f.Went })
	c.rate(rates, "tries that failed", "bad", func(f *operator.Figures) int64 { return f.Failed })
	waits := c.plot("Messages waiting", "messages", c.Span.step)
	c.highest(waits, "at the broker", "", func(f *operator.Figures) (float64, bool) { return float64(f.Waiting), f.Waiting != operator.Unknown })
	c.highest(waits, "parked", "second", func(f *operator.Figures) (float64, bool) { return float64(f.Parked), f.Known() })
	failures := c.plot("Failing and dead", "ordering keys and messages", c.Span.step)
	c.highest(failures, "ordering keys that fail", "warn",
		func(f *operator.Figures) (float64, bool) { return float64(f.Failing), f.Failing != operator.Unknown })
	c.highest(failures, "dead letters", "bad", func(f *operator.Figures) (float64, bool) { return float64(f.Dead), f.Known() })
	return []*Plot{rates, waits, failures}
}

// sum adds up what fails and what is dead in several histories, by the times of their figures. Histories that lack a time, or have not read a number, do
// not count.
func sum(histories []operator.History) operator.History {
	found := map[time.Time]operator.Figures{}
	add := func(to *int64, n int64) {
		switch {
		case n == operator.Unknown:
		case *to == operator.Unknown:
			*to = n
		default:
			*to += n
		}
	}
	for _, h := range histories {
		for n := range h.Figures {
			f := &h.Figures[n]
			all, known := found[f.At]
			if !known {
				all = operator.Figures{At: f.At, Failing: operator.Unknown, Dead: operator.Unknown}
			}
			add(&all.Failing, f.Failing)
			add(&all.Dead, f.Dead)
			all.Span = max(all.Span, f.Span)
			found[f.At] = all
		}
	}
	return operator.History{Figures: slices.Collect(maps.Values(found))}
}

// Spark returns a small plot of what a consumer handled and what failed.
func (c *Course) Spark(name string) *Plot {
	p := c.plot(name, "messages", c.Span.bar)
	p.Bars = true
	c.sum(p, "handled", "", func(f *operator.Figures) int64 { return f.Went })
	c.sum(p, "failed", "bad", func(f *operator.Figures) int64 { return f.Failed })
	return p
}

// plot returns a plot without series.
func (c *Course) plot(name, unit string, step time.Duration) *Plot {
	return New(name, unit, c.Now, c.Span.Length, step)
}

// each calls fn for the figures of a plot, with the columns that they cover. Figures of ten minutes cover ten columns of a minute.
func (c *Course) each(p *Plot, columns int, fn func(f *operator.Figures, column int)) {
	for n := range c.History.Figures {
		f := &c.History.Figures[n]
		for at := f.At; at.Before(f.At.Add(f.Span)); at = at.Add(p.step) {
			if column := p.column(at); column >= 0 && column < columns {
				fn(f, column)
			}
		}
	}
}

// columns returns how many columns a plot of the course has.
func (c *Course) columns(p *Plot) int { return int(c.Span.Length / p.step) }

// highest adds a series with the highest value in each column.
func (c *Course) highest(p *Plot, name, class string, value func(*operator.Figures) (v float64, known bool)) {
	columns := c.columns(p)
	s := p.Add(name, class, columns)
	c.each(p, columns, func(f *operator.Figures, n int) {
		if v, known := value(f); known && !(s.Values[n] >= v) { // NaN is not at least v
			s.Values[n] = v
		}
	})
}

// rate adds a series with a rate for each column: what was counted in it, over the time in which it was counted.
func (c *Course) rate(p *Plot, name, class string, value func(*operator.Figures) int64) {
	columns := c.columns(p)
	s, sums, seconds := p.Add(name, class, columns), make([]float64, columns), make([]float64, columns)
	c.each(p, columns, func(f *operator.Figures, n int) {
		sums[n], seconds[n] = sums[n]+float64(value(f)), seconds[n]+f.Counted.Seconds()
	})
	for n := range columns {
		if seconds[n] > 0 {
			s.Values[n] = sums[n] / seconds[n]
		}
	}
}

// sum adds a series with the count of each column.
func (c *Course) sum(p *Plot, name, class string, value func(*operator.Figures) int64) {
	columns := c.columns(p)
	s := p.Add(name, class, columns)
	c.each(p, columns, func(f *operator.Figures, n int) {
		if f.Counted <= 0 {
			return
		}
		if s.Values[n] != s.Values[n] { // NaN: the first one
			s.Values[n] = 0
		}
		s.Values[n] += float64(value(f))
	})
}
