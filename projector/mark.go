package projector

import (
	"context"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/projector/internal/progress"
)

// observeInterval is the interval between two looks at the sequence while there is work.
const observeInterval = 200 * time.Millisecond

// mark is the watermark of one database. All workers of a relay share it, because it says something about transactions
// and nothing about lanes: one look serves all of them.
type mark struct {
	log lanedb.Log

	mu      sync.Mutex
	numbers progress.Watermark

	looking sync.Mutex // held during a look
	seen    time.Time  // when the last look was answered
}

// observe looks at the sequence, unless the last look is younger than observeInterval. It returns the generation of
// the mark, which changes whenever the cursors of all lanes become void, and the incarnation of the server.
//
// One worker looks at a time. If two looked at once, the older answer could be taken last, and its lower number would
// look as if the server had forgotten numbers. The other workers wait for the answer. If they fetched without it,
// they would trust cursors on a server that may be another one.
func (m *mark) observe(ctx context.Context) (generation int, incarnation string, err error) {
	m.looking.Lock()
	defer m.looking.Unlock()
	if time.Since(m.seen) >= observeInterval {
		if err := m.look(ctx); err != nil {
			return 0, "", err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	generation, incarnation = m.numbers.Generation()
	return generation, incarnation, nil
}

func (m *mark) look(ctx context.Context) error {
	before := m.begin()
	now, err := m.log.ReadWatermark(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.numbers.Doubt()
		return err
	}
	m.numbers.Take(before, now)
	m.seen = time.Now()
	return nil
}

// lookAgain looks at the sequence at once, because a fetch on a shortcut gave nothing. It reports whether the reason
// was that the shortcut has ended.
func (m *mark) lookAgain(ctx context.Context, before progress.Shortcut) (ended bool, err error) {
	m.looking.Lock()
	err = m.look(ctx)
	m.looking.Unlock()
	_, short := m.now()
	return short.N != before.N, err
}

// begin must be called before a statement is sent that looks at the sequence, see [progress.Watermark].
func (m *mark) begin() progress.Look {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.numbers.Begin()
}

// took takes the answer of a statement that has taken rows. It saves looks while the relay is busy.
func (m *mark) took(before progress.Look, now lanedb.Watermark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.numbers.Took(before, now)
}

// now returns the mark and the shortcut. A caller that fetches must read them before the fetch begins, see
// [progress.Watermark].
func (m *mark) now() (low int64, short progress.Shortcut) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.numbers.Current(), m.numbers.Shortcut()
}

// server says on which server the cursors of one worker rest. A server that crashed may give the numbers of forgotten
// rows to others. So what was read before is compared by generation before anything is written by number.
type server struct {
	mark       *mark
	generation int    // of the mark, when the worker last read or dropped its positions
	nudge      func() // makes the worker look at all its lanes
}

// isSame reports whether the cursors of this pass still hold. A pass may take long, so it looks at the sequence
// again, unless that was done a moment before. If the cursors do not hold, the next pass comes at once and begins at
// the heads of the lanes.
func (s *server) isSame(ctx context.Context) (bool, error) {
	now, _, err := s.mark.observe(ctx)
	if err != nil {
		return false, err
	}
	if now != s.generation {
		s.nudge()
	}
	return now == s.generation, nil
}
