package quietlog

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// mostAmong is how many kinds of lines are counted separately within a group, and mostListed how many
	// of them a line lists.
	mostAmong  = 20
	mostListed = 5
)

// group holds the records of one repeated failure.
type group struct {
	key    key
	family key           // its message and consumer, without the reason
	hold   time.Duration // how long no record must come until the group is over
	looked int           // number of the latest timer; earlier ones do nothing

	first     *entry
	began     time.Time
	last      time.Time // when the latest record came
	until     time.Time // the failing part has announced that it pauses until then, so no record is expected earlier
	written   time.Time // when a line was last written
	latest    *entry
	total     int
	unwritten int
	among     map[string]int // counts of records since the last line, by label
	all       map[string]int // counts of all records, by label
}

// begin makes the first record the start of the group. It was written by itself, so it does not count as unwritten.
func (g *group) begin(e *entry, now time.Time) {
	g.began, g.written, g.among, g.all = now, now, map[string]int{}, map[string]int{}
	g.add(e, now)
	g.first = g.latest
}

// count adds a record that is not written for the moment.
func (g *group) count(e *entry, now time.Time) {
	g.add(e, now)
	g.unwritten++
	tally(g.among, label(e))
}

// The record and its context are kept beyond the call. The copy holds no cancellation, because the line may be written
// long after the request has ended.
func (g *group) add(e *entry, now time.Time) {
	kept := *e
	kept.ctx, kept.record = context.WithoutCancel(e.ctx), e.record.Clone()
	g.latest, g.last = &kept, now
	// A part that announces a pause is silent until then, which does not mean that it works again.
	if until := now.Add(e.facts.wait); until.After(g.until) {
		g.until = until
	}
	g.total++
	tally(g.all, label(e))
}

// quiet returns the moment at which the group is over if no further record comes.
func (g *group) quiet() time.Time {
	if g.until.After(g.last) {
		return g.until.Add(g.hold)
	}
	return g.last.Add(g.hold)
}

// line returns the latest record, with the number of records that it stands for.
func (g *group) line(now time.Time) *entry {
	// The latest record is the most useful one: it has the present error and the present attempt.
	out := g.repeat(g.latest, now, g.key.level, g.latest.record.Message, g.among, slog.Int("lines", g.unwritten))
	g.written, g.unwritten = now, 0
	clear(g.among)
	return out
}

// end returns the line that the failure was not seen for a while, made from the first record. It is nil after a single
// record, which needs no end, and for a group at level INFO, which reports that something is back.
func (g *group) end(now time.Time) *entry {
	if g.total == 1 || g.key.level < slog.LevelWarn {
		return nil
	}
	// The end is written from the first record: it has the message that a reader has seen when the failure began.
	return g.repeat(g.first, now, slog.LevelInfo, notSeen(g.first.record.Message), g.all, slog.Duration("quiet", now.Sub(g.last).Round(time.Millisecond)))
}

// repeat returns a copy of a record with the counts of the group.
func (g *group) repeat(e *entry, now time.Time, level slog.Level, message string, among map[string]int, more slog.Attr) *entry {
	out := *e
	out.record = slog.NewRecord(now, level, message, e.record.PC)
	e.record.Attrs(func(a slog.Attr) bool {
		out.record.AddAttrs(a)
		return true
	})
	about := []any{more, slog.Int("total", g.total), slog.Time("since", g.began), slog.Time("last", g.last)}
	if len(among) > 1 {
		about = append(about, slog.String("among", list(among)))
	}
	out.record.AddAttrs(slog.Group("repeated", about...))
	return &out
}

// notSeen returns the message of a group's last line.
func notSeen(message string) string {
	who, what := speaker(message)
	return who + "not seen for a while: " + what
}

// speaker separates the name of the program, with which its messages begin, from the rest.
// A long text before a colon is part of the message, not a name.
func speaker(message string) (who, what string) {
	who, what, found := strings.Cut(message, ": ")
	if !found || len(who) > len("Pulsar's client") {
		return "", message
	}
	return who + ": ", what
}

// label returns the beginning of a record's message, and the consumer or component that it is about.
func label(e *entry) string {
	_, text := speaker(e.record.Message)
	if end := strings.IndexAny(text, ",:;."); end > 0 {
		text = text[:end]
	}
	if e.facts.user == "" {
		return text
	}
	return text + " (" + e.facts.user + ")"
}

// tally adds one to a count, in a map of limited size.
func tally(counts map[string]int, what string) {
	if _, known := counts[what]; !known && len(counts) >= mostAmong {
		what = "others"
	}
	counts[what]++
}

// list formats the counts, the largest first.
func list(counts map[string]int) string {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	var out []string
	for _, name := range names[:min(len(names), mostListed)] {
		out = append(out, fmt.Sprintf("%d × %s", counts[name], name))
	}
	if more := len(names) - mostListed; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}
