package projector_test

import (
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

// The process's clock is wrong by ten minutes in either direction, seen from the database, whose functions are shifted
// here. Leases keep others out for as long as they should, and what waits leaves when it should.
func TestClockOfTheProcessDecidesNothing(t *testing.T) {
	for _, shift := range []string{"-10 minutes", "10 minutes"} {
		t.Run(shift, func(t *testing.T) {
			f := newFixture(t)
			for _, name := range []string{"clock_timestamp", "now"} {
				_, err := f.db.Exec(fmt.Sprintf(`CREATE FUNCTION %s() RETURNS timestamptz LANGUAGE sql
					AS $$ SELECT pg_catalog.clock_timestamp() + interval '%s' $$`, name, shift))
				require.NoError(t, err)
			}
			store := f.through(nil, func(u *url.URL) {
				query := u.Query()
				query.Set("search_path", f.db.Schema+",pg_catalog") // named, it comes second
				u.RawQuery = query.Encode()
			})
			f.pub.refuse = func(e event.Envelope) error {
				if len(f.pub.taken) == 0 {
					return errors.New("not before something else was sent")
				}
				return nil
			}
			cfg := quick()
			cfg.Name, cfg.MaxRetryAttempts = "one", -1
			one, err := projector.New(f.pub, &cfg, store)
			require.NoError(t, err)
			f.run(one)
			f.add("a", "a1")
			f.eventually("a1 waits", func() bool { return f.statuses()["a1"] == outbox.StatusFailed })
			f.pub.refuseWith(nil)
			f.eventually("a1 is sent", func() bool { return f.statuses()["a1"] == outbox.StatusSent })

			cfg.Name = "two"
			two, err := projector.New(f.pub, &cfg, store)
			require.NoError(t, err)
			require.NoError(t, two.RunOnce(t.Context()))
			var taken, outlived int
			require.NoError(t, f.db.QueryRow("SELECT count(*) FROM outbox_lane WHERE epoch > 1").Scan(&taken))
			require.Zero(t, taken, "the leases of the other one were respected")
			require.NoError(t, f.db.QueryRow(`SELECT count(*) FROM outbox_lane
				WHERE abs(extract(epoch FROM lease_until - pg_catalog.clock_timestamp() - ?::interval)) > 60`, shift).Scan(&outlived))
			require.Zero(t, outlived, "they end by the clock that everybody shares")
		})
	}
}
