package adopt_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/outbox/adopt"
)

// states lists the tables that are adopted.
func (f *fixture) states() []adopt.State {
	f.t.Helper()
	list, err := adopt.States(f.t.Context(), f.store)
	require.NoError(f.t, err)
	return list
}

// From the first move until the end of the switch it is known what waits in the old table, who looks after it, and whether old code writes.
func TestStates(t *testing.T) {
	f := newFixture(t, orders)
	m := f.mover(mapOrders)
	f.write("a", "1")
	_, err := m.Preview(t.Context(), 1)
	require.NoError(t, err)
	require.Empty(t, f.states(), "a look is no adoption")
	f.once(m)
	f.write("a", "2", "bad")
	f.write("a", "4")
	s := f.states()[0]
	require.Equal(t, f.db.Schema+".old", s.Table)
	require.EqualValues(t, 1, s.Moved)
	require.EqualValues(t, 3, s.Waiting)
	require.Equal(t, adopt.Missing, s.Trigger)
	for _, at := range []time.Time{s.Since, s.MovedAt, s.LookedAt, s.Oldest} {
		require.WithinDuration(t, time.Now(), at, 30*time.Minute)
	}
	require.EqualValues(t, 2, f.once(m).Left)
	s = f.states()[0]
	require.EqualValues(t, 1, s.Stay)
	require.EqualValues(t, 2, s.Waiting)
	await.True(t, func() bool { return !f.states()[0].WrittenAt.IsZero() }, "the statistics of the server say that old code writes")

	f.exec(`UPDATE old SET payload = '3' WHERE payload = 'bad'`)
	require.NoError(t, m.Forward(t.Context()))
	s = f.states()[0]
	require.Equal(t, adopt.Enabled, s.Trigger)
	require.Zero(t, s.Stay+s.Waiting)
	require.True(t, s.Oldest.IsZero())
	f.exec(`ALTER TABLE old DISABLE TRIGGER oncebox_forward`)
	require.Equal(t, adopt.Disabled, f.states()[0].Trigger)
	require.False(t, isForwarding(t, m))
	f.exec(`ALTER TABLE old ENABLE TRIGGER oncebox_forward`)
	require.NoError(t, m.StopForwarding(t.Context()))
	require.Empty(t, f.states())
}

// A mover that fails says so, until it moves rows again.
func TestStateOfAMoverThatFails(t *testing.T) {
	f := newFixture(t, orders)
	f.exec(`ALTER TABLE old ADD CHECK (sent_at IS NULL)`)
	f.write("a", "1")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	m := f.moverOf(f.mapping(mapOrders), &adopt.Config{Interval: time.Millisecond})
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	await.True(t, func() bool { return len(f.states()) == 1 }, "it has failed")
	s := f.states()[0]
	require.Contains(t, s.Error, "violates check constraint")
	require.WithinDuration(t, time.Now(), s.FailedAt, 30*time.Minute)
	require.WithinDuration(t, time.Now(), s.LookedAt, 30*time.Minute)
	require.EqualValues(t, 1, s.Waiting)
	f.exec(`ALTER TABLE old DROP CONSTRAINT old_sent_at_check`)
	await.True(t, func() bool { return f.states()[0].Error == "" }, "the row is moved")
	stop()
	require.NoError(t, await.Receive(t, ended, "the mover ends"))
	require.EqualValues(t, 1, f.states()[0].Moved)
}
