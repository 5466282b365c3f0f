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
	// most is how many groups are told apart. What comes beyond them has a group for each message.
	most = 1000
	// mostReasons is how many groups a message has for each consumer. A text in which something else differs each time, as the name of a
	// customer, is one group beyond them.
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

// groups are those of one logger and of what was made of it.
type groups struct {
	interval time.Duration
	writing  sync.RWMutex // held by timers while they write, so that flush can wait for them; taken before mu

	mu      sync.Mutex
	live    map[key]*group
	past    map[key]past
	reasons map[key]int // of the live groups, by message and consumer
}

// past is what is remembered of a group that is over, for the case that it comes again: then its pauses are longer than was thought.
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

// isOfDatabase reports whether what was late is the database. Our own parts wait for nothing else without saying so. A handler may, and a request; while
// the database is away they hardly do.
func (s *groups) isOfDatabase(f *facts) bool {
	part := f.consumer == "" && !f.route
	return part || s.live[key{level: slog.LevelWarn, away: Database}] != nil || s.live[key{level: slog.LevelError, away: Database}] != nil
}

// holdOf is for how long nothing of a group must come for it to be over. One that comes again soon after its end has longer pauses.
func (s *groups) holdOf(k key, now time.Time) time.Duration {
	hold := s.interval + s.interval/2
	before, came := s.past[k]
	delete(s.past, k)
	if pause := now.Sub(before.last); came && pause < 10*s.interval {
		hold = max(hold, before.hold, 2*pause)
	}
	return hold
}

// look has the group looked at, at a moment. A timer that is not needed any more finds nothing to do: none is ever stopped.
func (s *groups) look(g *group, at time.Time) {
	g.looked++
	n := g.looked
	time.AfterFunc(time.Until(at), func() {
		s.writing.RLock()
		defer s.writing.RUnlock()
		if line := s.looked(g, n); line != nil {
			_ = line.write() // nobody is there to be told
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
	default: // nothing was counted, or it seems to be over: then the last line has the count, and what comes before that is written at once
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

// remember keeps a group in mind whose records came slowly, one by one. Of what failed all the time nothing comes now because it is over.
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
