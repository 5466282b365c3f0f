package quietlog

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/cause"
)

const (
	// most is how many groups there may be. Beyond them there is only one group for each message.
	most = 1000
	// mostReasons is how many groups a message may have for each consumer. If its text differs each time, for example by the name of a customer, all
	// further records are one group.
	mostReasons = 20
)

// entry is a record on its way.
type entry struct {
	ctx    context.Context //nolint:containedctx // of the record, for the handler behind
	next   slog.Handler
	record slog.Record
	facts  facts
}

// write hands the record to the handler behind, if that wants it.
func (e *entry) write() error {
	if !e.next.Enabled(e.ctx, e.record.Level) {
		return nil
	}
	return e.next.Handle(e.ctx, e.record)
}

// groups holds the groups of one logger and of the loggers derived from it.
type groups struct {
	interval time.Duration
	writing  sync.RWMutex // held by timers while they write, so that flush can wait for them; taken before mu

	mu      sync.Mutex
	live    map[key]*group
	past    map[key]past
	reasons map[key]int // of the live groups, by message and consumer
}

// past is remembered of a group that is over. If the group comes again, its pauses are longer than assumed.
type past struct {
	last time.Time
	hold time.Duration
}

func newGroups(interval time.Duration) *groups {
	return &groups{interval: interval, live: map[key]*group{}, past: map[key]past{}, reasons: map[key]int{}}
}

// note takes a record, and returns the line that is to be written, if one is.
func (s *groups) note(e *entry) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	g := s.groupOf(e, now)
	if g.total == 0 {
		g.begin(e, now)
		s.look(g, g.quiet())
		return e
	}
	g.count(e, now)
	switch due := g.written.Add(s.interval); {
	case !now.Before(due):
		return g.line(now)
	case g.unwritten == 1:
		s.look(g, due)
	}
	return nil
}

// groupOf returns the group of a record, a new one if need be.
func (s *groups) groupOf(e *entry, now time.Time) *group {
	if e.facts.late && e.facts.away == "" && s.isOfDatabase(&e.facts) {
		e.facts.away = Database
	}
	message := cause.Of(e.record.Message)
	k, family := keyOf(e.record.Level, message, &e.facts), key{level: e.record.Level, message: message, place: e.facts.consumer}
	if s.live[k] == nil && k.away == "" && s.reasons[family] >= mostReasons {
		k = family
	}
	if s.live[k] == nil && k.away == "" && len(s.live) >= most {
		k = key{level: k.level, message: message}
	}
	if s.live[k] == nil && len(s.live) >= 2*most {
		k = key{level: k.level}
	}
	if g := s.live[k]; g != nil {
		return g
	}
	g := &group{key: k, family: family, hold: s.holdOf(k, now)}
	s.live[k] = g
	s.reasons[family]++
	return g
}

// isOfDatabase reports whether a timeout comes from the database. For oncebox's own parts it does, because their other timeouts name the server. A
// handler or a request may wait for something else, but hardly while the database is away.
func (s *groups) isOfDatabase(f *facts) bool {
	part := f.consumer == "" && !f.route
	return part || s.live[key{level: slog.LevelWarn, away: Database}] != nil || s.live[key{level: slog.LevelError, away: Database}] != nil
}

// holdOf returns the pause after which a group is over. It is longer for a group that came again soon after its end.
func (s *groups) holdOf(k key, now time.Time) time.Duration {
	hold := s.interval + s.interval/2
	before, came := s.past[k]
	delete(s.past, k)
	if pause := now.Sub(before.last); came && pause < 10*s.interval {
		hold = max(hold, before.hold, 2*pause)
	}
	return hold
}

// look starts a timer that looks at the group at a moment. Timers are never stopped: a timer that is not needed any more finds nothing to do.
func (s *groups) look(g *group, at time.Time) {
	g.looked++
	n := g.looked
	time.AfterFunc(time.Until(at), func() {
		s.writing.RLock()
		defer s.writing.RUnlock()
		if line := s.looked(g, n); line != nil {
			_ = line.write() // there is no caller to return the error to
		}
	})
}

// looked is what a timer does.
func (s *groups) looked(g *group, n int) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch quiet := g.quiet(); {
	case s.live[g.key] != g || g.looked != n:
		return nil
	case !now.Before(quiet):
		s.remove(g)
		s.remember(g)
		return g.end(now)
	case g.unwritten > 0 && (g.key.level < slog.LevelWarn || quiet.Sub(now) > s.interval+s.interval/4):
		s.look(g, quiet)
		return g.line(now)
	default: // nothing was counted, or the group seems to be over: then the last line contains the count, and a record before it is written at once
		s.look(g, quiet)
		return nil
	}
}

func (s *groups) remove(g *group) {
	delete(s.live, g.key)
	if s.reasons[g.family]--; s.reasons[g.family] == 0 {
		delete(s.reasons, g.family)
	}
}

// remember keeps a group that is over if its records came slowly, one by one. A failure that occurred all the time needs no memory: when its
// records stop, it is over.
func (s *groups) remember(g *group) {
	if g.total > 1 && g.last.Sub(g.began) < time.Duration(g.total-1)*s.interval/4 {
		return
	}
	if len(s.past) >= most {
		clear(s.past)
	}
	s.past[g.key] = past{last: g.last, hold: g.hold}
}

// flush ends all groups. A timer may have taken a line already: it is written, too, before flush returns, because a process ends next.
func (s *groups) flush() {
	s.writing.Lock()
	defer s.writing.Unlock()
	for _, line := range s.drain() {
		_ = line.write() // as a timer would
	}
}

func (s *groups) drain() (lines []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, g := range s.live {
		if g.unwritten > 0 {
			lines = append(lines, g.line(now))
		}
	}
	slices.SortFunc(lines, func(a, b *entry) int { return a.record.Time.Compare(b.record.Time) })
	clear(s.live)
	clear(s.past)
	clear(s.reasons)
	return lines
}
