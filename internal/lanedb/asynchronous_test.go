package lanedb_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/outboxtest"
)

// Notes and settles of the relay need not wait for the disk. Holds must wait: after a crash nobody would know the
// block. Triggers that are deferred to the commit see how it will be done.
func TestOnlyFetchAndSettleCommitAsynchronously(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.DB.Exec(`
		CREATE TABLE committed (how text);
		CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			INSERT INTO committed VALUES (TG_TABLE_NAME || ' ' || TG_OP || ' ' || current_setting('synchronous_commit')); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER noted AFTER INSERT ON outbox_claim DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_commit();
		CREATE CONSTRAINT TRIGGER recorded AFTER INSERT ON outbox_progress DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_commit();
		CREATE CONSTRAINT TRIGGER gone AFTER DELETE ON outbox DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_commit()`)
	require.NoError(t, err)
	commits := func() (out []string) {
		require.NoError(t, f.DB.NewRaw("DELETE FROM committed RETURNING how").Scan(t.Context(), &out))
		return out
	}
	f.Record("a", "a1")
	f.Record("a", "a2")
	rows := f.Fetch()
	require.Equal(t, []string{"outbox_claim INSERT off"}, commits())
	lease := f.Leases[rows[0].Lane]
	_, err = lanedb.Of(f.Handle()).Log.Record(t.Context(), []lanedb.Placed{{Lease: lease}})
	require.NoError(t, err)
	require.Equal(t, []string{outboxtest.Today("outbox_progress") + " INSERT off"}, commits())
	_, err = lanedb.Of(f.Handle()).Moves.Settle(t.Context(), []lanedb.Lease{lease}, []outboxdb.RowID{{Lane: lease.Lane, Seq: rows[0].Sequence}})
	require.NoError(t, err)
	require.Equal(t, []string{outboxtest.Today("outbox") + " DELETE off"}, commits())
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(t.Context(), lease, []lanedb.Outcome{{Seq: rows[1].Sequence, Verdict: lanedb.Dead, Error: "no"}}))
	require.Equal(t, []string{outboxtest.Today("outbox") + " DELETE on"}, commits())
}
