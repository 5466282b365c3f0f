package projector_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/uow"
)

// sleepy is a projector that polls so seldom that a test would end first.
func sleepy() projector.Config {
	cfg := patient()
	cfg.SleepBusy, cfg.SleepIdle = time.Hour, time.Hour
	return cfg
}

// another is the store of another process.
func (f *fixture) another() *outbox.Store {
	return outbox.NewStore(f.db.Another(f.t), &outbox.Config{Source: "test"})
}

func (f *fixture) published(name string) func() bool {
	return func() bool { return slices.Contains(f.pub.types(), name) }
}

// hears waits for an event that another store announces.
func (f *fixture) hears(other *outbox.Store, name string) {
	f.t.Helper()
	other.Wake()
	f.hasHeard(other, name)
}

// hasHeard waits for an event that another store has announced. A store gives an announcement up after a second, so a machine that
// stood still gets another one.
func (f *fixture) hasHeard(other *outbox.Store, name string) {
	f.t.Helper()
	announced := time.Now()
	f.eventually(name+" is published", func() bool {
		if time.Since(announced) > 10*time.Second {
			announced = time.Now()
			other.Wake()
		}
		return f.published(name)()
	})
}

// listeners returns the server processes of the connections that listen to this outbox.
func (f *fixture) listeners() (pids []int) {
	f.t.Helper()
	err := f.db.NewRaw(`SELECT pid FROM pg_stat_activity, oncebox_settings l
		WHERE datname = current_database() AND query = 'LISTEN "oncebox_outbox_' || l.tableoid || '"'`).Scan(f.t.Context(), &pids)
	require.NoError(f.t, err)
	return pids
}

func (f *fixture) listener() int {
	f.t.Helper()
	var pids []int
	f.eventually("a connection listens", func() bool {
		pids = f.listeners()
		return len(pids) == 1
	})
	return pids[0]
}

// Each row comes when the one before it has been published and nothing is left to do but to sleep for an hour.
func TestACommitOfAnotherProcessIsPublishedWithoutAPoll(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.run(f.projector(sleepy()))
	f.listener()
	other := f.another()
	units := uow.New(f.db.Another(t), &uow.Config{Source: "test"}, other)
	for i := range 20 {
		name := fmt.Sprintf("e%d", i)
		require.NoError(t, units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
			return u.Add("order", []byte("1"), event.WithAggregate("order", name, 1), event.WithType(name))
		}))
		f.hasHeard(other, name)
	}
}

// Commits while nobody listens are announced to nobody. Here, no writer announces them at all.
func TestAfterAReconnectThereIsOnePollAndThenTheProjectorListensAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.run(f.projector(sleepy()))
	other := f.another()
	for i := range 3 {
		pid := f.listener()
		unheard, heard := fmt.Sprintf("unheard%d", i), fmt.Sprintf("heard%d", i)
		f.add("k1", unheard)
		_, err := f.db.ExecContext(t.Context(), "SELECT pg_terminate_backend(?)", pid)
		require.NoError(t, err)
		f.eventually(unheard+" is published", f.published(unheard))

		f.eventually("another connection listens", func() bool {
			pids := f.listeners()
			return len(pids) == 1 && pids[0] != pid
		})
		f.add("k2", heard)
		f.hears(other, heard)
	}
}

func TestBehindAPoolerPollingAloneDelivers(t *testing.T) {
	t.Parallel()
	for _, cfg := range []*outbox.Config{{Source: "test", Pooler: true}, {Source: "test", PollOnly: true}} {
		f := newFixture(t)
		if cfg.Pooler {
			f.db = f.db.Pooled(t)
		}
		f.store = outbox.NewStore(f.db.DB, cfg)
		f.run(f.projector(quick()))
		other := f.another()
		for i := range 10 {
			name := fmt.Sprintf("e%d", i)
			f.add("k1", name)
			other.Wake()
			f.eventually(name+" is published", f.published(name))
			require.Empty(t, f.listeners())
		}
	}
}
