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
	// most is the largest number of groups. Further records have only one group for each message.
	most = 1000
	// mostReasons is how many groups a message may have for each consumer. If the error's text differs each time, for
	// example by a customer's name, further records share one group.
	mostReasons = 20
)

// entry is a record on its way.
type entry struct {
	ctx    context.Context //nolint:containedctx // of the record, for the handler behind
	next   slog.Handler
	record slog.Record
	facts  facts
}

// write passes the record to the next handler, if that accepts its level.
func (e *entry) write() error {
	if !e.next.Enabled(e.ctx, e.record.Level) {
		return nil
	}
	return e.next.Handle(e.ctx, e.record)
}

// groups holds the groups of one logger, and of the loggers derived from it.
type groups struct {
	interval time.Duration
	writing  sync.RWMutex // timers hold it while they write, so that flush can wait for them; it is locked before mu

	mu      sync.Mutex
	live    map[key]*group
	past    map[key]past
	reasons map[key]int // number of live groups, by message and consumer
}

// past is what is remembered of a group that is over. If it comes again, its pauses are longer than was assumed.
type past struct {
	last time.Time
	hold time.Duration
}

func newGroups(interval time.Duration) *groups {
	return &groups{interval: interval, live: map[key]*group{}, past: map[key]past{}, reasons: map[key]int{}}
}

// note adds a record to its group. It returns the line to write now, nil if there is none.
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
	// Without a timer the group would never end, and a failure that stopped would look as if it went on.
	switch due := g.written.Add(s.interval); {
	case !now.Before(due):
		// The interval is over, so this record becomes the line at once. No timer is needed for it.
		return g.line(now)
	// The first record that was only counted starts the timer for its line.
	case g.unwritten == 1:
		s.look(g, due)
	}
	return nil
}

// groupOf returns the group of a record, and makes it if there is none. When there are too many groups, it
// uses coarser ones.
func (s *groups) groupOf(e *entry, now time.Time) *group {
	// A timeout has no name of its server. If the database is known to be down, it is most probably one
	// more sign of that.
	if e.facts.late && e.facts.away == "" && s.isOfDatabase(&e.facts) {
		e.facts.away = Database
	}
	message := cause.Of(e.record.Message)
	k, family := keyOf(e.record.Level, message, &e.facts), key{level: e.record.Level, message: message, place: e.facts.consumer}
	// Texts that differ each time must not make groups without end. The message alone is then the group.
	if s.live[k] == nil && k.away == "" && s.reasons[family] >= mostReasons {
		k = family
	}
	if s.live[k] == nil && k.away == "" && len(s.live) >= most {
		k = key{level: k.level, message: message}
	}
	// Even messages can be without end. The last resort is one group for each level.
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

// isOfDatabase reports whether a timeout comes from the database. For oncebox's own parts it always does, because their
// other timeouts name the server. A handler or a request may wait for something else, but that is unlikely while the
// database is known to be down.
func (s *groups) isOfDatabase(f *facts) bool {
	part := f.consumer == "" && !f.route
	return part || s.live[key{level: slog.LevelWarn, away: Database}] != nil || s.live[key{level: slog.LevelError, away: Database}] != nil
}

// holdOf returns how long a group must be quiet to be over. It is longer for a group that has come again
// soon after its end.
func (s *groups) holdOf(k key, now time.Time) time.Duration {
	// Half an interval more than the distance of two lines, so that a failure that comes once in an
	// interval does not end each time.
	hold := s.interval + s.interval/2
	before, came := s.past[k]
	delete(s.past, k)
	// A pause of twice the last one is tolerated, so that a retry with growing pauses is one failure and not many.
	if pause := now.Sub(before.last); came && pause < 10*s.interval {
		hold = max(hold, before.hold, 2*pause)
	}
	return hold
}

// look starts a timer that looks at the group at the given moment. Timers are never stopped: a timer that is no longer needed finds nothing to do.
func (s *groups) look(g *group, at time.Time) {
	g.looked++
	n := g.looked
	time.AfterFunc(time.Until(at), func() {
		s.writing.RLock()
		defer s.writing.RUnlock()
		if line := s.looked(g, n); line != nil {
			_ = line.write() // nobody is left who could get the error
		}
	})
}

// looked is called by timer n. It returns the line to write, nil if there is none.
func (s *groups) looked(g *group, n int) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	// A later timer looks at the group in place of this one.
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
	default: // nothing was counted, or the group is nearly over: its last line will contain the count
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

// remember keeps a group that is over if its records came slowly. A failure that occurs all the time is really over
// when its records stop; a slow one may only be in a long pause.
func (s *groups) remember(g *group) {
	if g.total > 1 && g.last.Sub(g.began) < time.Duration(g.total-1)*s.interval/4 {
		return
	}
	// Forgetting all is better than growing: the groups then end a little too early once.
	if len(s.past) >= most {
		clear(s.past)
	}
	s.past[g.key] = past{last: g.last, hold: g.hold}
}

// flush ends all groups, and returns when their lines are written, also a line that a timer has taken already, because
// the process may end after it.
func (s *groups) flush() {
	s.writing.Lock()
	defer s.writing.Unlock()
	for _, line := range s.drain() {
		_ = line.write() // nobody is left who could get the error
	}
}

// drain empties all maps at once, so records that come meanwhile begin new groups.
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
