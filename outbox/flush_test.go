package outbox_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// Every way to store a number of events keeps them in their order, and says where they are.
func TestFlushOfManyEvents(t *testing.T) {
	f := newFixture(t, nil)
	for _, n := range []int{1, 2, 16, 17, 40} {
		var evs []event.Envelope
		for i := range n {
			evs = append(evs, event.Envelope{
				ID: newID(t), Type: "t", Source: "test", TenantID: "acme", Topic: "many", AggregateType: "order", AggregateID: fmt.Sprint(n),
				AggregateVersion: int64(i + 1), OccurredAt: testTime, ContentType: "text/plain",
			})
		}
		f.Commit(func(tx bun.Tx) { require.NoError(t, f.Flush(t.Context(), tx, evs)) })
		for i := range evs {
			require.NotZero(t, evs[i].Sequence)
			require.True(t, i == 0 || evs[i-1].Sequence < evs[i].Sequence, "event %d of %d", i, n)
		}
		var stored int
		require.NoError(t, f.DB.NewRaw("SELECT count(*) FROM outbox WHERE aggregate_id = ? AND payload = ''", fmt.Sprint(n)).Scan(t.Context(), &stored))
		require.Equal(t, n, stored)
	}
}

// The statement must fail by itself: COMMIT may follow before anybody looks at its result.
func TestFlushNoticesRowsThatWereDropped(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.DB.Exec(`CREATE FUNCTION drop_row() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
			IF NEW.topic = 'dropped' THEN RETURN NULL; END IF; RETURN NEW; END $f$;
		CREATE TRIGGER drop_row BEFORE INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION drop_row()`)
	require.NoError(t, err)
	_, err = pgtest.Add(t.Context(), f.DB.DB, f, "dropped", []byte("x"))
	require.ErrorContains(t, err, "outbox: of 1 events were stored 0")
	_, err = pgtest.Add(t.Context(), f.DB.DB, f, "kept", []byte("x"))
	require.NoError(t, err)
}
