package outboxtest

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/outbox/state"
)

// Claim leases all lanes to an owner.
func (f *Fixture) Claim(owner string) {
	f.T.Helper()
	leases, err := lanedb.Of(f.Handle()).Leases.Claim(f.T.Context(), owner, 0, 64, 30*time.Minute)
	require.NoError(f.T, err)
	f.Leases = map[int16]lanedb.Lease{}
	for _, l := range leases {
		f.Leases[l.Lane] = l
	}
}

// Fetch reads the rows that wait in the lanes, and records them as read.
func (f *Fixture) Fetch() []state.Row {
	f.T.Helper()
	var cursors []lanedb.Cursor
	for _, l := range f.Leases {
		cursors = append(cursors, lanedb.Cursor{Lease: l, Quota: 100})
	}
	rows, err := lanedb.Of(f.Handle()).Log.Fetch(f.T.Context(), cursors, 0)
	require.NoError(f.T, err)
	f.Take(rows)
	return rows
}

// Take records rows as read.
func (f *Fixture) Take(rows []state.Row) {
	f.T.Helper()
	upto := map[int16]int64{}
	for i := range rows {
		upto[rows[i].Lane] = max(upto[rows[i].Lane], rows[i].Sequence)
	}
	var taken []lanedb.Taken
	for lane, seq := range upto {
		taken = append(taken, lanedb.Taken{Lease: f.Leases[lane], Upto: seq})
	}
	held, _, err := lanedb.Of(f.Handle()).Log.Take(f.T.Context(), taken)
	require.NoError(f.T, err)
	require.Len(f.T, held, len(taken))
}

// Settle publishes the rows that wait in the lanes.
func (f *Fixture) Settle() {
	f.T.Helper()
	var leases []lanedb.Lease
	var ids []outboxdb.RowID
	for _, l := range f.Leases {
		leases = append(leases, l)
	}
	for _, r := range f.Fetch() {
		ids = append(ids, outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence})
	}
	_, err := lanedb.Of(f.Handle()).Moves.Settle(f.T.Context(), leases, ids)
	require.NoError(f.T, err)
}

// Kill makes new rows dead letters, each with its own error, and holds the other rows of their lanes.
func (f *Fixture) Kill(errs map[string]string) {
	f.T.Helper()
	outcomes := map[int16][]lanedb.Outcome{}
	for _, r := range f.Fetch() {
		o := lanedb.Outcome{Seq: r.Sequence, Verdict: lanedb.Follower}
		if text, dead := errs[r.Type]; dead {
			o.Verdict, o.Error, o.Cause = lanedb.Dead, text, r.Fingerprint(text)
		}
		outcomes[r.Lane] = append(outcomes[r.Lane], o)
	}
	for lane, list := range outcomes {
		require.NoError(f.T, lanedb.Of(f.Handle()).Moves.Hold(f.T.Context(), f.Leases[lane], list))
	}
}

// GiveUp makes a held row a dead letter.
func (f *Fixture) GiveUp(lease lanedb.Lease, change, seq int64, reason string) error {
	f.T.Helper()
	o := lanedb.HeldOutcome{RowID: outboxdb.RowID{Lane: lease.Lane, Seq: seq}, Verdict: lanedb.Dead, Error: reason}
	gone, held, err := lanedb.Of(f.Handle()).Held.GiveUpHeld(f.T.Context(), []lanedb.LoadedLease{{Lease: lease, Change: change}}, []lanedb.HeldOutcome{o})
	if err == nil && !held[lease.Lane] {
		require.Empty(f.T, gone)
		return lanedb.ErrFenced
	}
	return err
}

// Due returns the types of the held rows whose time has come, in all lanes.
func (f *Fixture) Due() (types []string) {
	f.T.Helper()
	var lanes []int16
	for n := range f.Leases {
		lanes = append(lanes, n)
	}
	rows, _, err := lanedb.Of(f.Handle()).Held.Due(f.T.Context(), lanes, 0)
	require.NoError(f.T, err)
	for _, r := range rows {
		types = append(types, r.Type)
	}
	slices.Sort(types)
	return types
}

// Drain settles held rows one by one, as the owner of their lane does, and returns their types, by key and in order.
func (f *Fixture) Drain() map[string][]string {
	f.T.Helper()
	sent := map[string][]string{}
	var lanes []int16
	for n := range f.Leases {
		lanes = append(lanes, n)
	}
	for {
		rows, _, err := lanedb.Of(f.Handle()).Held.Due(f.T.Context(), lanes, 0)
		require.NoError(f.T, err)
		if len(rows) == 0 {
			return sent
		}
		for _, r := range rows {
			_, err := lanedb.Of(f.Handle()).Held.SettleHeld(f.T.Context(), f.Leases[r.Lane], f.Change(r.Lane), r.Key, []int64{r.Sequence})
			require.NoError(f.T, err)
			sent[r.Key] = append(sent[r.Key], r.Type)
		}
	}
}

// Change returns the counter of operators' changes of a lane.
func (f *Fixture) Change(lane int16) int64 {
	f.T.Helper()
	blocks, err := lanedb.Of(f.Handle()).Held.Blocks(f.T.Context(), []int16{lane})
	require.NoError(f.T, err)
	return blocks[lane].Change
}
