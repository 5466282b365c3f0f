package quietlog

import (
	"cmp"
	"context"
	"log/slog"
	"time"
)

const (
	// Interval is the default time between two lines of a group.
	Interval = time.Minute
	// Off is an interval with which every record is written.
	Off time.Duration = -1
)

// New returns a logger that writes one line for each group and interval. If l is such a logger already, it
// returns l. With [Off] every record is written, and a later New does not change that. A nil l is
// slog.Default(), an interval of 0 is [Interval].
func New(l *slog.Logger, interval time.Duration) *slog.Logger {
	if l == nil {
		l = slog.Default()
	}
	// Two of these handlers in a row would count each record twice.
	if find(l.Handler()) != nil {
		return l
	}
	h := &handler{next: l.Handler()}
	if interval != Off {
		h.groups = newGroups(cmp.Or(interval, Interval))
	}
	return slog.New(h)
}

// Every returns a logger that writes each of its records, even if l is a logger of [New]. It is for records that a
// person will look for. A nil l is slog.Default().
func Every(l *slog.Logger) *slog.Logger {
	if l == nil {
		l = slog.Default()
	}
	// The groups are skipped and the handler behind is kept, so the record goes to the same place.
	if h, is := l.Handler().(*handler); is {
		return slog.New(&handler{next: h.next})
	}
	return New(l, Off)
}

// Flush writes the lines of all groups with records that were counted and not written yet, and starts new groups. Call
// it at the end of a process, or of a part of it, because the next line would come only after the interval.
func Flush(l *slog.Logger) {
	if h := find(l.Handler()); h != nil && h.groups != nil {
		h.groups.flush()
	}
}

// find returns this package's handler if h is or wraps one, else nil.
func find(h slog.Handler) *handler {
	for {
		switch is := h.(type) {
		case *handler:
			return is
		case interface{ Unwrap() slog.Handler }:
			h = is.Unwrap()
		default:
			return nil
		}
	}
}

// handler groups records in front of another handler.
type handler struct {
	next   slog.Handler
	groups *groups // nil: every record is written
	facts  facts   // from the attributes of the logger
}

// Enabled asks the next handler.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle writes a record, or only counts it in its group.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if h.groups == nil {
		return h.next.Handle(ctx, r)
	}
	// The facts of the logger are shared by all its records, so each record works on a copy.
	f := h.facts.clone()
	r.Attrs(func(a slog.Attr) bool {
		f.add(a)
		return true
	})
	if f.away == "" {
		f.away = awayIn(ctx)
	}
	// INFO is grouped only about an outage: a hundred parts report that they are back. Other INFO lines are news.
	if r.Level < slog.LevelWarn && (r.Level < slog.LevelInfo || f.away == "") {
		return h.next.Handle(ctx, r)
	}
	if line := h.groups.note(&entry{ctx: ctx, next: h.next, record: r, facts: f}); line != nil {
		return line.write()
	}
	return nil
}

// WithAttrs returns a handler that shares the groups of this one.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := &handler{next: h.next.WithAttrs(attrs), groups: h.groups, facts: h.facts.clone()}
	for _, a := range attrs {
		with.facts.add(a)
	}
	return with
}

// WithGroup returns a handler that shares the groups of this one.
// The group's name is not part of the facts: an error is the same error within any group.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{next: h.next.WithGroup(name), groups: h.groups, facts: h.facts}
}
