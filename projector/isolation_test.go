package projector_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
)

// A database whose transactions are stricter by default would refuse whatever waited for a lock: settles, and rows would be
// published again and again. All that the relay, its keeping and its operators write is READ COMMITTED.
func TestDefaultIsolationOfTheDatabaseIsNotTakenOver(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			f := newFixture(t)
			_, err := f.db.Exec(`CREATE TABLE levels (tab text, level text);
				CREATE FUNCTION note_level() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					INSERT INTO levels VALUES (TG_TABLE_NAME, current_setting('transaction_isolation')); RETURN NULL; END $$`)
			require.NoError(t, err)
			tables := []string{"outbox", "outbox_lane", "outbox_projector", "outbox_held", "outbox_block", "outbox_dead", "outbox_sent", "oncebox_audit"}
			for _, table := range tables {
				_, err = f.db.Exec("CREATE TRIGGER note_level AFTER INSERT OR UPDATE OR DELETE ON " + table +
					" FOR EACH STATEMENT EXECUTE FUNCTION note_level()")
				require.NoError(t, err)
			}
			pool := f.pool(&tap{}, func(u *url.URL) {
				query := u.Query()
				query.Set("default_transaction_isolation", level)
				u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
			})
			store := outbox.NewStore(pool, &outbox.Config{Source: "test", Deployment: "test", AuditRetention: 24 * time.Hour})
			f.pub.refuseWith(func(e event.Envelope) error {
				if e.Type == "bad" {
					return messaging.Permanent(errNotNow)
				}
				return nil
			})
			f.add("a", "good")
			id := f.add("b", "bad")
			f.add("b", "behind")
			f.add("c", "later", event.WithNotBefore(time.Now().Add(time.Hour)))
			require.NoError(t, f.relay(f.pub, quick(), store).RunOnce(t.Context()))
			require.NoError(t, store.Clean(t.Context()))
			_, err = store.Upkeep().Reconcile(t.Context())
			require.NoError(t, err)
			_, err = store.State().Disorder(t.Context())
			require.NoError(t, err)
			require.NoError(t, store.Dead().Discard(t.Context(), id, operator.By{Actor: "ann", Reason: "bad"}))
			require.NoError(t, f.relay(f.pub, quick(), store).RunOnce(t.Context()))
			require.ElementsMatch(t, []string{"good", "behind"}, f.pub.types())
			for _, table := range tables {
				require.Positive(t, f.rows("levels WHERE tab LIKE ? || '%'", table), table)
			}
			require.Zero(t, f.rows("levels WHERE level = ?", level))
		})
	}
}
