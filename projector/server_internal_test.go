package projector

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// counter is a publisher that takes everything.
type counter struct{ n int }

func (c *counter) Publish(_ context.Context, msgs []event.Envelope) error {
	c.n += len(msgs)
	return nil
}

// driven is a relay with one worker, which a test drives by hand.
type driven struct {
	t      *testing.T
	db     *pgtest.DB
	store  *outbox.Store
	pub    *counter
	mark   *mark
	worker *worker
}

func drive(t *testing.T) *driven {
	t.Helper()
	db := pgtest.Migrated(t, pgtest.Outbox)
	store := outbox.NewStore(db.DB, &outbox.Config{Source: "test"})
	pub := &counter{}
	p, err := New(pub, &Config{Workers: 1, Lease: 30 * time.Minute, PublishTimeout: time.Minute}, store)
	require.NoError(t, err)
	Hasten(p)
	r := newRelay(p, store)
	require.NoError(t, r.leases.Coordinate(t.Context()))
	d := &driven{t: t, db: db, store: store, pub: pub, mark: r.mark, worker: r.workers[0]}
	d.pass()
	return d
}

// add records an event of a key and commits it.
func (d *driven) add(key string) {
	d.t.Helper()
	_, err := pgtest.Add(d.t.Context(), d.db.DB, d.store, "order", []byte("x"), event.WithAggregate("order", key, 1), event.WithType("e"))
	require.NoError(d.t, err)
}

func (d *driven) pass() {
	d.t.Helper()
	_, err := d.worker.pass(d.t.Context())
	require.NoError(d.t, err)
}

func (d *driven) search() picked {
	d.t.Helper()
	p, err := d.worker.search.pick(d.t.Context(), d.worker.owned.Ready(), lanedb.Filter{}, topicsOf)
	require.NoError(d.t, err)
	return p
}

// A search asks which server there is, and ends if its cursors do not hold there.
func TestSearchEndsWhenTheServerIsAnother(t *testing.T) {
	t.Parallel()
	d := drive(t)
	d.add("1")
	d.search()
	require.Equal(t, 1, d.pub.n)

	d.add("1")
	_, err := d.db.Exec("DELETE FROM outbox_incarnation") // as a crash does
	require.NoError(t, err)
	d.mark.seen = time.Time{} // the last look was long ago
	d.search()
	require.Equal(t, 1, d.pub.n)
	d.pass()
	require.Equal(t, 2, d.pub.n)
}

// A search has passed an open transaction. When this has ended, the search begins again behind the mark at once, without waiting
// for the next look at the sequence. A look far ahead that came too late does not count.
func TestSearchBeginsAgainWhenATransactionHasEnded(t *testing.T) {
	for name, notices := range map[string]func(t *testing.T, d *driven, l *progress.Lane){
		"a search": func(t *testing.T, d *driven, _ *progress.Lane) { require.True(t, d.search().more) },
		"a look far ahead": func(t *testing.T, d *driven, l *progress.Lane) {
			low, short := d.mark.now()
			l.Full, l.Topics.Stuck = true, short.Limit(low)
			_, err := d.worker.search.far(t.Context(), []*progress.Lane{l}, lanedb.Filter{}, topicsOf)
			require.NoError(t, err)
			require.Zero(t, l.Topics.FarSeen)
			require.NotEqual(t, 0, d.worker.search.farLooks)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := drive(t)
			d.add("1") // the first event of a tenant makes the tenant's other events wait
			long, err := d.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = long.Rollback() })
			_, err = d.store.Add(t.Context(), long, "order", []byte("x"), event.WithAggregate("order", "2", 1), event.WithType("e"))
			require.NoError(t, err)
			others := 1
			var lane *progress.Lane
			await.True(t, func() bool { // again if transactions of other tests, on which the shortcut rests as well, end meanwhile
				d.add("1")
				others++
				require.NoError(t, d.mark.look(t.Context()))
				require.NoError(t, d.mark.look(t.Context()))
				d.search()
				_, short := d.mark.now()
				for _, l := range d.worker.owned.All() {
					if short.Reached(l.Topics.Short) > 2 {
						lane = l
					}
				}
				return lane != nil
			}, "the search has passed the number of the open transaction")
			require.Equal(t, others, d.pub.n)

			d.mark.seen = time.Now().Add(time.Hour) // no look comes
			require.NoError(t, long.Commit())
			notices(t, d, lane)
			require.Equal(t, others, d.pub.n)
			d.search()
			require.Equal(t, others+1, d.pub.n)
		})
	}
}

// A look far ahead finds the backlog of a second tenant, in one lane alone. From then on this tenant is skipped as well.
func TestLookFarAheadFindsABacklog(t *testing.T) {
	t.Parallel()
	d := drive(t)
	d.mark.seen = time.Now().Add(time.Hour) // no look comes, and the mark stays
	for _, backlog := range []struct {
		tenant         string
		from, lanes, n int
	}{{"first", 0, maxFarLooks, maxFarLooks * (lanedb.ScanWindow + 1)}, {"second", 10_000, 1, 90}} {
		_, err := d.db.Exec(`INSERT INTO outbox (seq, id, occurred_at, lane, tenant_id, topic, event_type, source, payload)
			SELECT i + ?, gen_random_uuid(), now(), i % ?, ?, 'order', 'e', 'test', 'x' FROM generate_series(1, ?) i`,
			backlog.from, backlog.lanes, backlog.tenant, backlog.n)
		require.NoError(t, err)
	}
	search := d.worker.search
	search.backlogged.Join([]string{"first"})
	lanes := d.worker.owned.Ready()
	for _, l := range lanes {
		l.Full = true
	}
	_, err := search.give(t.Context(), lanes, schedule.OtherTenants, time.Minute)
	require.NoError(t, err)
	require.Equal(t, 90, d.pub.n)
	require.Contains(t, search.backlogged.Tenants, "second")
}
