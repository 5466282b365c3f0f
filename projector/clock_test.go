package projector_test

import (
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/state"
)

// The process's clock is wrong by ten minutes in either direction, seen from the database, whose functions are shifted
// here. Leases keep others out for as long as they should, and what waits leaves when it should.
func TestClockOfTheProcessDecidesNothing(t *testing.T) {
	t.Parallel()
	for _, shift := range []string{"-10 minutes", "10 minutes"} {
		t.Run(shift, func(t *testing.T) {
			f := newFixture(t)
			for _, name := range []string{"clock_timestamp", "now"} {
				_, err := f.db.Exec(fmt.Sprintf(`CREATE FUNCTION %s() RETURNS timestamptz LANGUAGE sql
					AS $$ SELECT pg_catalog.clock_timestamp() + interval '%s' $$`, name, shift))
				require.NoError(t, err)
			}
			db := f.pool(&tap{}, func(u *url.URL) {
				query := u.Query()
				query.Set("search_path", f.db.Schema+",pg_catalog") // named, it comes second
				u.RawQuery = query.Encode()
			})
			store := outbox.NewStore(db, &outbox.Config{Source: "test", PollOnly: true})
			f.requireLeasesByTheDatabase(lanedb.Of(store.Handle()), shift)
			f.pub.refuse = func(e event.Envelope) error {
				if len(f.pub.taken) == 0 {
					return errors.New("not before something else was sent")
				}
				return nil
			}
			cfg := quick()
			cfg.Name, cfg.MaxRetryAttempts = "one", -1
			cfg.Lease, cfg.Renew = 2*time.Hour, time.Hour // the first projector does not know of the second, and gives it nothing
			one := f.relay(f.pub, cfg, store)
			f.run(one)
			f.add("a", "a1")
			f.eventually("a1 waits", func() bool { return f.statuses()["a1"] == state.StatusFailed })
			f.pub.refuseWith(nil)
			f.eventually("a1 is sent", func() bool { return f.statuses()["a1"] == state.StatusSent })

			cfg.Name = "two"
			two := f.relay(f.pub, cfg, store)
			require.NoError(t, two.RunOnce(t.Context()))
			var taken, outlived int
			require.NoError(t, f.db.QueryRow("SELECT count(*) FROM outbox_lane WHERE epoch > 2").Scan(&taken))
			require.Zero(t, taken, "the leases of the other one were respected")
			require.NoError(t, f.db.QueryRow(`SELECT count(*) FROM outbox_lane
				WHERE abs(extract(epoch FROM lease_until - pg_catalog.clock_timestamp() - ?::interval - interval '2 hours')) > 300`,
				shift).Scan(&outlived))
			require.Zero(t, outlived, "they end by the clock that everybody shares")
		})
	}
}

// requireLeasesByTheDatabase requires that leases that are shorter than the shift begin and end by the clock of the database.
func (f *fixture) requireLeasesByTheDatabase(r lanedb.Lanes, shift string) {
	f.t.Helper()
	const lease = 5 * time.Minute
	ends := func(what string) {
		f.t.Helper()
		require.Equal(f.t, 64, f.rows(`outbox_lane WHERE abs(extract(epoch FROM
			lease_until - pg_catalog.clock_timestamp() - ?::interval - interval '5 minutes')) < 120`, shift), what)
	}
	leases, err := r.Leases.Claim(f.t.Context(), "first", 0, 64, lease)
	require.NoError(f.t, err)
	require.Len(f.t, leases, 64)
	ends("a claim")
	others, err := r.Leases.Claim(f.t.Context(), "second", 0, 64, lease)
	require.NoError(f.t, err)
	require.Empty(f.t, others)
	renewed, err := r.Leases.Renew(f.t.Context(), leases, lease)
	require.NoError(f.t, err)
	require.Len(f.t, renewed, 64)
	ends("a renewal")
	require.NoError(f.t, r.Leases.Release(f.t.Context(), leases))
}

// The clock of the database goes back by an hour, as in a failover to a server whose clock is behind, and a projector dies before it has renewed anything. Its
// lanes and its share are another one's when a lease has ended, and not an hour later. One that lives loses nothing.
func TestLeasesOfAClockThatWentBackAreCut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	relay := lanedb.Of(f.store.Handle())
	const lease = 3 * time.Minute
	held, err := relay.Leases.Claim(t.Context(), "dead", 0, 40, lease)
	require.NoError(t, err)
	require.Len(t, held, 40)
	alive, err := relay.Leases.Claim(t.Context(), "alive", 0, 24, time.Hour)
	require.NoError(t, err)
	for name, ttl := range map[string]time.Duration{"dead": lease, "alive": time.Hour} {
		_, err := relay.Leases.Heartbeat(t.Context(), name, 0, ttl)
		require.NoError(t, err)
	}
	_, err = f.db.Exec("UPDATE outbox_projector SET seen_until = seen_until + interval '1 hour' WHERE owner = 'dead'")
	require.NoError(t, err)
	require.NoError(t, f.changeLanes("lease_until = l.lease_until + CASE l.owner WHEN 'dead' THEN interval '1 hour' ELSE '0' END"))

	cfg := quick()
	cfg.Name, cfg.Lease, cfg.PublishTimeout = "third", 10*time.Second, time.Second
	f.run(f.relay(f.pub, cfg, f.another()))
	f.eventually("what is too far ahead is cut", func() bool {
		return f.rows("outbox_lane WHERE owner = 'dead' AND lease_until > clock_timestamp() + interval '190 seconds'")+
			f.rows("outbox_projector WHERE owner = 'dead' AND seen_until > clock_timestamp() + interval '190 seconds'") == 0
	})
	require.Equal(t, 40, f.rows("outbox_lane WHERE owner = 'dead' AND lease_until > clock_timestamp() + interval '60 seconds'"), "it may be alive after all")
	require.Equal(t, 24, f.rows("outbox_lane WHERE owner = 'alive' AND lease_until > clock_timestamp() + interval '50 minutes'"), "its leases are long")
	renewed, err := relay.Leases.Renew(t.Context(), alive, time.Hour)
	require.NoError(t, err)
	require.Len(t, renewed, 24)
}
