package projector_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

// pair is a process that relays the outboxes of two databases to one broker.
type pair struct {
	here, there *fixture
	away        *pgtest.Apart
	pub         *recorder
}

func newPair(t *testing.T) *pair {
	t.Helper()
	away := pgtest.OpenApart(t)
	pub := &recorder{}
	of := func(db *pgtest.DB, source string) *fixture {
		return &fixture{t: t, db: db, store: outbox.NewStore(db.DB, &outbox.Config{Source: source}), pub: pub}
	}
	return &pair{here: of(pgtest.Migrated(t, pgtest.Outbox), "here"), there: of(away.DB, "there"), away: away, pub: pub}
}

func (p *pair) projector(t *testing.T) *projector.Projector {
	t.Helper()
	cfg := quick()
	var stores []*outbox.Store
	for _, f := range []*fixture{p.here, p.there} {
		stores = append(stores, outbox.NewStore(f.db.DB, nil)) // as in a process that has seen neither of them
	}
	return p.here.relay(p.pub, cfg, stores...)
}

const keys = 5

// add stores count events more of each key, numbered from first.
func addMany(f *fixture, first, count int) {
	for n := first; n < first+count; n++ {
		for k := range keys {
			f.add(fmt.Sprintf("k%d", k), fmt.Sprint(n))
		}
	}
}

// took counts the events of a source, and fails if one was overtaken under its key. An event that comes again counts once: its
// database may have left before it could be settled.
func (p *pair) took(t *testing.T, source string) (events int) {
	t.Helper()
	p.pub.mu.Lock()
	defer p.pub.mu.Unlock()
	next, seen := map[string]int{}, map[string]bool{}
	for _, m := range p.pub.taken {
		if m.Source != source || seen[m.ID] {
			continue
		}
		seen[m.ID] = true
		if want := fmt.Sprint(next[m.AggregateID]); m.Type != want {
			t.Fatalf("%s of %s came where %s was expected", m.Type, m.AggregateID, want)
		}
		next[m.AggregateID]++
		events++
	}
	return events
}

// The keys and tenants of both are the same, and so are their lanes: nothing of one is taken for the other's.
func TestOneProcessRelaysTwoDatabases(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	addMany(p.here, 0, 10)
	addMany(p.there, 0, 20)
	p.here.run(p.projector(t))
	addMany(p.there, 20, 10)
	addMany(p.here, 10, 20)
	p.here.eventually("all of both are sent", func() bool {
		return p.took(t, "here") == 30*keys && p.took(t, "there") == 30*keys
	})
}

func TestDatabaseThatGoesAwayStopsNoOther(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.here.run(p.projector(t))
	addMany(p.here, 0, 5)
	addMany(p.there, 0, 5)
	p.here.eventually("both are relayed", func() bool { return p.took(t, "here")+p.took(t, "there") == 10*keys })

	addMany(p.there, 5, 5) // may be on their way
	p.away.Leave(t)
	for n := 5; n < 25; n += 5 {
		addMany(p.here, n, 5)
		p.here.eventually("the other one goes on", func() bool { return p.took(t, "here") == (n+5)*keys })
	}
	p.away.Return(t)
	p.there.db.SetMaxIdleConns(0) // the connections that it ended
	addMany(p.there, 10, 5)
	p.here.eventually("it is relayed again", func() bool { return p.took(t, "there") == 15*keys })
	require.Equal(t, 25*keys, p.took(t, "here"))
}

// A process that is started meanwhile relays the others, and this one when it is back.
func TestDatabaseThatIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	addMany(p.here, 0, 5)
	addMany(p.there, 0, 5)
	p.away.Leave(t)
	p.there.db.SetMaxIdleConns(0) // the connections that it ended
	p.here.run(p.projector(t))
	p.here.eventually("the other one is relayed", func() bool { return p.took(t, "here") == 5*keys })
	require.Zero(t, p.took(t, "there"))
	p.away.Return(t)
	p.here.eventually("it is relayed", func() bool { return p.took(t, "there") == 5*keys })
}
