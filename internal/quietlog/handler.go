package quietlog

import (
	"cmp"
	"context"
	"log/slog"
	"time"
)

const (
	// Interval is how often a group has a line by default.
	Interval = time.Minute
	// Off writes every line.
	Off time.Duration = -1
)

// New returns a logger that writes one line per group and interval, or l itself if it is such a logger already. With [Off] every line is written,
// and a later New does not change that. nil: slog.Default(). 0: [Interval].
func New(l *slog.Logger, interval time.Duration) *slog.Logger {
	if l == nil {
		l = slog.Default()
	}
	if find(l.Handler()) != nil {
		return l
	}
	h := &handler{next: l.Handler()}
	if interval != Off {
		h.groups = newGroups(cmp.Or(interval, Interval))
	}
	return slog.New(h)
}

// Every returns a logger that writes each of its lines, even if l is a logger of [New]: it is for lines that a person looks for. nil:
// slog.Default().
func Every(l *slog.Logger) *slog.Logger {
	if l == nil {
		l = slog.Default()
	}
	if h, is := l.Handler().(*handler); is {
		return slog.New(&handler{next: h.next})
	}
	return New(l, Off)
}

// Flush writes the lines that were counted and not written yet, and begins anew. Call it at the end of a process, or of a part of it, because the
// next line of a group would come only after the interval. When Flush returns, all earlier lines are written.
func Flush(l *slog.Logger) {
	if h := find(l.Handler()); h != nil && h.groups != nil {
		h.groups.flush()
	}
}

// find returns the handler of this package that is in h, nil if there is none.
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

// handler stands before the handler of a logger of New.
type handler struct {
	next   slog.Handler
	groups *groups // nil: every line is written
	facts  facts   // of the attributes that the logger has
}

// Enabled is that of the handler behind.
func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle writes a record, or counts it.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if h.groups == nil {
		return h.next.Handle(ctx, r)
	}
	f := h.facts.clone()
	r.Attrs(func(a slog.Attr) bool {
		f.add(a)
		return true
	})
	if f.away == "" {
		f.away = awayIn(ctx)
	}
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
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{next: h.next.WithGroup(name), groups: h.groups, facts: h.facts}
}
