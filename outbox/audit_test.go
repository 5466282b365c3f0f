package outbox_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
)

func TestWhoAndWhyAreAskedFor(t *testing.T) {
	f := newFixture(t, nil)
	id := f.Record("a", "a1")
	f.Kill(map[string]string{"a1": "no"})
	many := func(act string, by operator.By, dry bool) error {
		bulk := &operator.Bulk{DryRun: dry}
		if act == "replay" {
			_, err := f.Dead().ReplayAll(t.Context(), operator.DeadFilter{}, by, bulk)
			return err
		}
		_, err := f.Dead().DiscardAll(t.Context(), operator.DeadFilter{}, by, bulk)
		return err
	}
	nobody, noReason := operator.By{Actor: " ", Reason: "r"}, operator.By{Actor: "ann", Reason: "\n"}
	for _, err := range []error{
		f.Dead().Replay(t.Context(), id, nobody), f.Dead().Discard(t.Context(), id, nobody),
		many("replay", nobody, false), many("discard", nobody, false), many("replay", nobody, true), many("discard", nobody, true),
	} {
		require.ErrorContains(t, err, `say who does it, as in operator.By{Actor: "ann"`)
	}
	for _, err := range []error{f.Dead().Discard(t.Context(), id, noReason), many("discard", noReason, false), many("discard", noReason, true)} {
		require.ErrorContains(t, err, "By.Reason is empty")
	}
	for text, err := range map[string]error{
		"the old payload cannot be brought back": f.Dead().ReplayEdited(t.Context(), id, []byte("new"), noReason),
		"what is deleted cannot be brought back": f.Dead().Discard(t.Context(), id, noReason),
		"another deployment publishes":           f.Upkeep().TakeOwnership(t.Context(), noReason),
		"kept for a different time":              f.Upkeep().SetRetention(t.Context(), noReason),
	} {
		require.ErrorContains(t, err, text)
	}
	require.ErrorIs(t, f.Dead().Replay(t.Context(), id, operator.By{Actor: "a\x00"}), event.ErrInvalid)
	require.Zero(t, f.Count("oncebox_audit"))
	require.Equal(t, 1, f.Count("outbox_dead"))
	require.NoError(t, f.Dead().Replay(t.Context(), id, operator.By{Actor: "ann"}), "a replay needs no reason")
}

func TestAuditIsListedNewestFirst(t *testing.T) {
	f := newFixture(t, nil)
	ids := map[string]string{}
	for _, name := range []string{"a1", "b1", "c1"} {
		ids[name] = f.Record(name, name, event.WithTenantID("acme"))
	}
	all := map[string]string{"a1": "no", "b1": "no", "c1": "no"}
	f.Kill(all)
	odd := strings.Repeat("ü", 2<<10) + "\x00\xff'; --"
	require.NoError(t, f.Dead().Replay(t.Context(), ids["a1"], operator.By{Actor: "bob", Reason: odd}))
	require.NoError(t, f.Dead().Discard(t.Context(), ids["b1"], ann))
	require.ErrorIs(t, f.Dead().Discard(t.Context(), ids["b1"], ann), operator.ErrNotDead)
	require.ErrorIs(t, f.Dead().Discard(t.Context(), "no id", ann), operator.ErrNotDead)
	require.NoError(t, f.Dead().Discard(t.Context(), ids["c1"], ann))

	var got []operator.AuditEntry
	var before *operator.AuditEntry
	for {
		page, err := f.Audit(t.Context(), operator.AuditFilter{}, before, 2)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		got, before = append(got, page...), &page[len(page)-1]
	}
	require.Len(t, got, 3, "what did not happen has no entry")
	require.Equal(t, []string{"c1", "b1", "a1"}, []string{got[0].Type, got[1].Type, got[2].Type})
	e := got[1]
	require.Positive(t, e.ID)
	require.False(t, e.At.IsZero())
	e.ID, e.At = 0, got[0].At
	require.Equal(t, operator.AuditEntry{
		At: got[0].At, Part: operator.PartOutbox, Actor: "ann", Action: operator.Discard, Reason: "tried it", EventID: ids["b1"], Events: 1,
		TenantID: "acme", Topic: "order", Type: "b1",
	}, e)
	require.Equal(t, strings.Repeat("ü", 1<<10), got[2].Reason, "cut to 2 KiB")

	one, err := f.Audit(t.Context(), operator.AuditFilter{EventID: strings.ToUpper(ids["a1"])}, nil, 0)
	require.NoError(t, err)
	require.Len(t, one, 1)
	require.Equal(t, "bob", one[0].Actor)
	_, err = f.Audit(t.Context(), operator.AuditFilter{EventID: "1"}, nil, 0)
	require.ErrorContains(t, err, "AuditFilter.EventID")
}

// Without the entry there is no change, and without the change no entry.
func TestDeedAndEntryAreOneTransaction(t *testing.T) {
	f := newFixture(t, nil)
	id := f.Record("a", "a1")
	f.Record("a", "a2")
	f.Kill(map[string]string{"a1": "no"})
	f.Exec("ALTER TABLE oncebox_audit ADD CHECK (actor <> 'ann')")
	lane := f.fetchLane("a1")
	change := f.Change(lane)
	require.Error(t, f.Dead().Replay(t.Context(), id, ann))
	require.Error(t, f.Dead().Discard(t.Context(), id, ann))
	require.Equal(t, change, f.Change(lane))
	require.Equal(t, 1, f.Count("outbox_block WHERE state = 'dead'"))
	require.Equal(t, map[string]string{"a1": "DEAD/1", "a2": "NEW/0"}, f.Statuses())

	f.Exec("ALTER TABLE outbox_held ADD CHECK (event_type <> 'a1')")
	require.Error(t, f.Dead().Replay(t.Context(), id, operator.By{Actor: "bob"}))
	require.Zero(t, f.Count("oncebox_audit"))
	require.NoError(t, f.Dead().Discard(t.Context(), id, operator.By{Actor: "bob", Reason: "r"}))
	require.Equal(t, 1, f.Count("oncebox_audit"))
}

// fetchLane returns the lane of a dead letter.
func (f *fixture) fetchLane(name string) (lane int16) {
	f.T.Helper()
	require.NoError(f.T, f.DB.NewRaw("SELECT lane FROM outbox_dead WHERE event_type = ?", name).Scan(f.T.Context(), &lane))
	return lane
}
