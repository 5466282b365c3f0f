package causes

import (
	"slices"
	"time"

	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
)

// readWithin is how old the latest figures may be.
const readWithin = 3 * time.Minute

// Place has what is known of all failures of a consumer, or of the outbox: its figures, the causes on the page, and the archived causes.
type Place struct {
	Figures  []operator.Figures
	Causes   []ops.Cause
	Archived []failures.Group
}

// Began returns since when a cause fails, to the minute. The oldest failure that is left does not say so: when its message is handled, it is another one,
// and the fault is the same. Therefore the minutes count in which something failed, without one between them in which nothing did. Zero: it is not known,
// because something else fails there too, or because the figures do not reach so far.
func (p *Place) Began(c *ops.Cause, now time.Time) time.Time {
	if p.hasOthers(c) {
		return time.Time{}
	}
	var first time.Time // minute of the fault, as far as it was looked for
	for _, f := range slices.Backward(p.Figures) {
		end := f.At.Add(f.Span)
		switch {
		case first.IsZero() && now.Sub(end) > readWithin, !first.IsZero() && end.Before(first):
			return time.Time{} // nobody read the figures
		case f.Failing > 0 || f.Failed > 0:
			first = f.At
		case first.IsZero() && end.After(now): // it may not have been read yet
		case first.IsZero():
			// The fault is younger than the last reading, or the figures do not have it.
			return after(c.Since, f.At)
		default:
			// The minute says nothing about its seconds. The oldest failure does, as long as it is there.
			if c.Since.Before(end.Add(time.Minute)) {
				return c.Since
			}
			return first
		}
	}
	return time.Time{}
}

// after returns a time that is after another one, or else the zero time.
func after(at, other time.Time) time.Time {
	if at.Before(other) {
		return time.Time{}
	}
	return at
}

// hasOthers reports whether there are other failures at the place of a cause.
func (p *Place) hasOthers(c *ops.Cause) bool {
	same := func(consumer string) bool { return state.Family(consumer) == state.Family(c.Consumer) }
	return slices.ContainsFunc(p.Causes, func(o ops.Cause) bool {
		return o.Kind == c.Kind && same(o.Consumer) && o.Fingerprint != c.Fingerprint && !slices.Contains(c.Fingerprints, o.Fingerprint)
	}) || slices.ContainsFunc(p.Archived, func(g failures.Group) bool { return same(g.Consumer) && g.Failing.Count > 0 })
}
