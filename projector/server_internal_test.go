package projector

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// counter is a publisher that takes everything.
type counter struct{ n int }

func (c *counter) Publish(_ context.Context, msgs []event.Envelope) error {
	c.n += len(msgs)
	return nil
}

// A search beyond a backlog goes on for long. Each part of it asks which server there is, and ends if the cursors do not hold
// there.
func TestSearchEndsWhenTheServerIsAnother(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t, pgtest.Outbox)
	store := outbox.NewStore(db.DB, &outbox.Config{Source: "test"})
	pub := &counter{}
	p, err := New(pub, &Config{Workers: 1, Lease: 3 * time.Minute, PublishTimeout: time.Minute}, store)
	require.NoError(t, err)
	r := newRelay(p, store)
	require.NoError(t, r.leases.Coordinate(t.Context()))
	w := r.workers[0]
	add := func() {
		_, err := pgtest.Add(t.Context(), db.DB, store, "order", []byte("x"), event.WithAggregate("order", "1", 1), event.WithType("e"))
		require.NoError(t, err)
	}
	pass := func() {
		_, err := w.pass(t.Context())
		require.NoError(t, err)
	}
	search := func() {
		low, _ := r.mark.now()
		_, err := w.search.give(t.Context(), w.owned.Ready(), schedule.OtherTenants, low+1, time.Minute)
		require.NoError(t, err)
	}
	pass()
	add()
	search()
	require.Equal(t, 1, pub.n)

	add()
	_, err = db.Exec("DELETE FROM outbox_incarnation") // as a crash does
	require.NoError(t, err)
	r.mark.seen = time.Time{} // the last look was long ago
	search()
	require.Equal(t, 1, pub.n)
	pass()
	require.Equal(t, 2, pub.n)
}
