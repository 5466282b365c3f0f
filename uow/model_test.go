package uow_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/uow"
)

// TestModel runs random programs of units, savepoints, aggregates, failures, panics, cancels and retries on PostgreSQL and on
// a model of a few lines, and compares what is there in the end.
func TestModel(t *testing.T) {
	s := newService(t, quick())
	happened := map[string]int{}
	nightly.Check(t, 100, 5000, func(t *rapid.T) {
		_, err := s.DB.Exec("TRUNCATE notes, sunk")
		require.NoError(t, err)
		s.sink.committed = nil
		p := &program{T: t, s: s, happened: happened}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		p.cancel = cancel
		p.load()
		err = recovered(func() error {
			return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
				p.begin()
				p.own = recovered(func() error { return p.run(ctx, u, p.top) })
				return p.own
			})
		})
		p.compare(err)
	})
	t.Logf("what happened: %v", happened)
	for _, what := range []string{"committed", "failed", "tried again", "dropped", "merged", "panicked"} {
		require.NotZero(t, happened[what], what)
	}
}

// level is the model of a unit: its entries, until they are merged into the level around it or dropped.
type level struct {
	outer   *level
	before  [3]int // how many events each account had when it began
	notes   []string
	entries []modelEntry
	hooks   []string
}

type modelEntry struct {
	account int // -1: added by hand
	text    string
}

// program draws what happens and does it, on the units and on the model.
type program struct {
	*rapid.T

	s        *service
	cancel   context.CancelFunc
	accounts [3]*account
	n        int
	hooked   []string
	own      error // what the outermost function returned
	happened map[string]int

	// The model.
	top      *level
	tries    int
	recorded [3][]string
	stale    map[int]bool
	broken   bool // a statement failed, and PostgreSQL takes no more of them up to the savepoint
	canceled bool // no statement is sent any more, and no COMMIT
}

// load gets the aggregates anew.
func (p *program) load() {
	p.stale = map[int]bool{}
	for i := range p.accounts {
		p.accounts[i], p.recorded[i] = newAccount(fmt.Sprint(i)), nil
	}
}

// begin is the begin of a try. What the one before tracked lived through its rollback, unless it is loaded again.
func (p *program) begin() {
	if p.tries++; p.tries > 1 {
		p.happened["tried again"]++
		for _, e := range p.top.entries {
			p.stale[e.account] = true
		}
		delete(p.stale, -1)
		if rapid.Bool().Draw(p.T, "load") {
			p.load()
		}
	}
	p.top, p.broken = &level{}, false
}

// run is the function of one unit.
func (p *program) run(ctx context.Context, u *uow.Unit, l *level) error {
	for range rapid.IntRange(0, 6).Draw(p.T, "statements") {
		if err := p.step(ctx, u, l); err != nil {
			return err
		}
	}
	switch rapid.SampledFrom([]string{"return", "return", "return", "return", "fail", "lose", "lose", "panic"}).Draw(p.T, "end") {
	case "fail":
		return errRefused
	case "lose":
		return errAgain
	case "panic":
		p.happened["panicked"]++
		panic(errRefused)
	}
	return nil
}

func (p *program) step(ctx context.Context, u *uow.Unit, l *level) error {
	p.n++
	text, i := fmt.Sprint("n", p.n), rapid.IntRange(0, len(p.accounts)-1).Draw(p.T, "account")
	switch rapid.SampledFrom([]string{"note", "record", "track", "add", "hook", "break", "cancel", "unit", "unit", "unit"}).Draw(p.T, "kind") {
	case "note":
		err := note(ctx, u, text)
		require.Equal(p, p.broken || p.canceled, err != nil)
		if err == nil {
			l.notes = append(l.notes, text)
		}
	case "record":
		p.accounts[i].Record(changed{text})
		p.recorded[i] = append(p.recorded[i], text)
	case "track":
		u.Track(p.accounts[i])
		l.entries = append(l.entries, modelEntry{account: i})
	case "add":
		require.NoError(p, u.Add("reports", []byte(text)))
		l.entries = append(l.entries, modelEntry{-1, text})
	case "hook":
		u.AfterCommit(func(context.Context) { p.hooked = append(p.hooked, text) })
		l.hooks = append(l.hooks, text)
	case "break":
		if rapid.IntRange(0, 3).Draw(p.T, "rarely") == 0 {
			_, err := u.DB().ExecContext(ctx, "SELECT 1/0")
			require.Error(p, err)
			p.broken = p.broken || !p.canceled
		}
	case "cancel":
		if rapid.IntRange(0, 1).Draw(p.T, "rarely") == 0 {
			p.cancel()
			p.canceled = true
		}
	case "unit":
		if len(l.path()) < 4 {
			return p.unit(ctx, l)
		}
	}
	return nil
}

func (l *level) path() (levels []*level) {
	for ; l != nil; l = l.outer {
		levels = append(levels, l)
	}
	return levels
}

// unit runs an inner unit. Its error is handed on or swallowed, its panic goes on or is recovered.
func (p *program) unit(ctx context.Context, outer *level) error {
	inner, began, ended := &level{outer: outer}, false, false
	for i := range p.recorded {
		inner.before[i] = len(p.recorded[i])
	}
	defer func() {
		if !ended {
			p.drop(inner, began)
		}
	}()
	do := func() error {
		return p.s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			began = true
			return p.run(ctx, u, inner)
		})
	}
	var err error
	if rapid.Bool().Draw(p.T, "recover") {
		err = recovered(do)
	} else {
		err = do()
	}
	ended = true
	if err == nil {
		require.True(p, began)
		require.False(p, p.broken, "a unit in which a statement failed cannot succeed")
		require.False(p, p.canceled)
		p.happened["merged"]++
		outer.notes = append(outer.notes, inner.notes...)
		outer.entries = append(outer.entries, inner.entries...)
		outer.hooks = append(outer.hooks, inner.hooks...)
		return nil
	}
	p.drop(inner, began)
	if rapid.IntRange(0, 3).Draw(p.T, "hand on") == 0 {
		return err
	}
	return nil
}

// drop is what the failure of a unit does.
func (p *program) drop(inner *level, began bool) {
	if !began {
		return // there was no savepoint to go back to
	}
	p.happened["dropped"]++
	p.broken = false
	for _, e := range inner.entries {
		p.stale[e.account] = true
	}
	for _, l := range inner.outer.path() {
		for _, e := range l.entries {
			if e.account >= 0 && len(p.recorded[e.account]) != inner.before[e.account] {
				p.stale[e.account] = true
			}
		}
	}
	delete(p.stale, -1)
}

// compare checks what is there against the model.
func (p *program) compare(err error) {
	top := p.top
	notes, sunk, hooks := []string{}, []string{}, []string(nil)
	emitted := map[int]bool{}
	stale := false
	for _, e := range top.entries {
		switch {
		case e.account < 0:
			sunk = append(sunk, "reports "+e.text)
		case !emitted[e.account]:
			emitted[e.account] = true
			stale = stale || p.stale[e.account]
			for v, text := range p.recorded[e.account] {
				sunk = append(sunk, fmt.Sprintf("account %d v%d %s", e.account, v+1, text))
			}
		}
	}
	switch {
	case p.canceled && errors.Is(p.own, errAgain):
		p.happened["canceled"]++
		require.ErrorIs(p, err, errAgain)
	case p.own != nil:
		p.happened["failed"]++
		require.Equal(p, p.own, err)
		require.True(p, !errors.Is(err, errAgain) || p.tries == 5, "%d tries", p.tries)
	case stale:
		p.happened["stale"]++
		require.ErrorIs(p, err, uow.ErrStale)
		require.Equal(p, p.tries > 1, errors.Is(err, errAgain), "the reason of the try before")
	case p.canceled:
		p.happened["canceled"]++
		require.ErrorIs(p, err, context.Canceled)
	case p.broken:
		require.Equal(p, "25P02", pgerr.Code(err))
	default:
		p.happened["committed"]++
		require.NoError(p, err)
		notes, hooks = append(notes, top.notes...), top.hooks
	}
	if err != nil {
		sunk, emitted = []string{}, nil
	}
	require.Equal(p, notes, p.rows("SELECT text FROM notes ORDER BY pos"))
	require.Equal(p, sunk, p.rows("SELECT line FROM sunk ORDER BY pos"))
	require.Equal(p, hooks, p.hooked)
	require.Len(p, p.s.sink.committed, len(sunk))
	require.Zero(p, p.s.Stats().InUse)
	for i, a := range p.accounts {
		if emitted[i] {
			require.Empty(p, a.RecordedEvents(), "cleared after COMMIT")
		} else {
			require.Len(p, a.RecordedEvents(), len(p.recorded[i]), "not emitted, not cleared")
		}
	}
}

func (p *program) rows(query string) []string {
	all := []string{}
	require.NoError(p, p.s.DB.NewRaw(query).Scan(context.Background(), &all))
	return all
}

// errAgain is a reason to run the function again.
var errAgain = fmt.Errorf("lost the race: %w", uow.ErrConflict)

// recovered turns a panic of the tests into its error.
func recovered(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			var ok bool
			if err, ok = p.(error); !ok || !errors.Is(err, errRefused) {
				panic(p)
			}
		}
	}()
	return fn()
}
