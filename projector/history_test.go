package projector_test

import (
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/projector"
)

// Of two projectors one keeps the history. The other one begins when that is cut off from the database, so that it could not even resign.
func TestOneProjectorKeepsTheHistory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	wire := f.wire()
	var byA, byB atomic.Int64
	run := func(name string, wrote *atomic.Int64, change func(u *url.URL)) {
		cfg := patient()
		cfg.Name = name
		p := f.relay(f.pub, cfg, f.through(func(statement string, _ bool) {
			if strings.Contains(statement, "INTO oncebox_history") {
				wrote.Add(1)
			}
		}, change))
		projector.ObserveOften(p)
		f.run(p)
	}
	t.Cleanup(wire.Mend)
	run("a", &byA, func(u *url.URL) { u.Host = wire.Addr })
	f.eventually("a writes", func() bool { return byA.Load() > 0 })
	run("b", &byB, nil)
	began := byA.Load()
	f.eventually("a goes on", func() bool { return byA.Load() > began+2 })
	require.Zero(t, byB.Load(), "one writes")
	wire.Silence(linktest.ToClient)
	f.eventually("b writes", func() bool { return byB.Load() > 0 })
	wire.Mend()
	h, err := f.store.State().History(t.Context(), time.Hour)
	require.NoError(t, err)
	require.NotEmpty(t, h.Figures)
}

// A relay that keeps no history reads the gauges all the same.
func TestHistoryCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	store := outbox.NewStore(f.db.DB, &outbox.Config{Source: "test", NoHistory: true})
	for range 2 {
		_, err := state.NewKeeper(store.State()).Read(t.Context())
		require.NoError(t, err)
	}
	require.Zero(t, f.rows("oncebox_history"))
}
