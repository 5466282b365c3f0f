package inbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/operator"
)

func TestWhoAndWhyAreAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.kill(w.box, "billing", ordered("a", "o1"))[0]
	all := func(dry bool, by operator.By) (replay, discard error) {
		_, replay = w.box.Dead().ReplayAll(t.Context(), operator.DeadFilter{}, by, &operator.Bulk{DryRun: dry})
		_, discard = w.box.Dead().DiscardAll(t.Context(), operator.DeadFilter{}, by, &operator.Bulk{DryRun: dry})
		return replay, discard
	}
	nobody, noReason := operator.By{Actor: " ", Reason: "r"}, operator.By{Actor: "ann", Reason: "\n"}
	for _, dry := range []bool{false, true} {
		replay, discard := all(dry, nobody)
		require.ErrorContains(t, replay, `say who does it, as in operator.By{Actor: "ann"`)
		require.ErrorContains(t, discard, "By.Actor is empty")
		_, discard = all(true, noReason)
		require.ErrorContains(t, discard, "By.Reason is empty")
	}
	require.ErrorContains(t, w.box.Dead().Replay(t.Context(), key, nobody), "By.Actor is empty")
	require.ErrorContains(t, w.box.Dead().Discard(t.Context(), key, noReason), "By.Reason is empty")
	require.ErrorContains(t, w.box.Parked().RetryNow(t.Context(), key, nobody), "By.Actor is empty")
	require.ErrorContains(t, w.box.Parked().GiveUp(t.Context(), key, noReason), "By.Reason is empty")
	for text, err := range map[string]error{
		"the old payload cannot be brought back":  w.box.Dead().ReplayEdited(t.Context(), key, []byte("new"), noReason),
		"what is deleted cannot be brought back":  w.box.Dead().Discard(t.Context(), key, noReason),
		"the messages behind this one wait until": w.box.Parked().GiveUp(t.Context(), key, noReason),
	} {
		require.ErrorContains(t, err, text)
	}
	elsewhere := key
	elsewhere.TenantID = "another"
	require.ErrorIs(t, w.box.Dead().Discard(t.Context(), elsewhere, ann), operator.ErrNotDead, "the reference names the tenant")
	require.ErrorIs(t, w.box.Dead().Replay(t.Context(), key, operator.By{Actor: "a\x00"}), event.ErrInvalid)
	require.Zero(t, w.count("oncebox_audit"))
	require.Len(t, w.dead(), 1)
	require.NoError(t, w.box.Dead().Replay(t.Context(), key, operator.By{Actor: "ann"}), "a replay needs no reason")
}

func TestAuditIsListedNewestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := newID(t), newID(t)
	keys := w.kill(w.box, "billing", ordered(a, "o1"), ordered(b, "o2"), unordered("c"))
	odd := strings.Repeat("ü", 2<<10) + "\x00\xff'; --"
	require.NoError(t, w.box.Dead().Replay(t.Context(), keys[0], operator.By{Actor: "bob", Reason: odd}))
	require.NoError(t, w.box.Dead().Discard(t.Context(), keys[1], ann))
	require.ErrorIs(t, w.box.Dead().Discard(t.Context(), keys[1], ann), operator.ErrNotDead)
	require.NoError(t, w.box.Dead().Discard(t.Context(), keys[2], ann))

	var got []operator.AuditEntry
	var before *operator.AuditEntry
	for {
		page, err := w.box.Audit(t.Context(), operator.AuditFilter{Consumer: "billing"}, before, 2)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		got, before = append(got, page...), &page[len(page)-1]
	}
	require.Len(t, got, 3, "what did not happen has no entry")
	require.Equal(t, []string{"c", b, a}, []string{got[0].MessageID, got[1].MessageID, got[2].MessageID})
	e := got[1]
	require.Positive(t, e.ID)
	require.WithinDuration(t, time.Now(), e.At, time.Minute)
	e.ID, e.At = 0, time.Time{}
	require.Equal(t, operator.AuditEntry{
		Actor: "ann", Action: operator.Discard, Reason: "tried it", Part: operator.PartInbox,
		TenantID: keys[1].TenantID, EventID: keys[1].MessageKey, Consumer: "billing", Source: keys[1].Source,
		Events: 1, MessageID: b, Topic: "order", Type: "order.placed",
	}, e)
	require.Equal(t, strings.Repeat("ü", 1<<10), got[2].Reason, "cut to 2 KiB")

	one, err := w.box.Audit(t.Context(), operator.AuditFilter{EventID: strings.ToUpper(a)}, nil, 0)
	require.NoError(t, err)
	require.Len(t, one, 1)
	require.Equal(t, "bob", one[0].Actor)
	_, err = w.box.Audit(t.Context(), operator.AuditFilter{EventID: "1"}, nil, 0)
	require.ErrorContains(t, err, "AuditFilter.EventID")
	none, err := w.box.Audit(t.Context(), operator.AuditFilter{Consumer: "shipping"}, nil, 0)
	require.NoError(t, err)
	require.Empty(t, none)
}

// Without the entry nothing changes, and the other way round.
func TestDeedAndEntryAreOneTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.kill(w.box, "billing", ordered("a", "o1"), ordered("b", "o1"))[0]
	head := w.failed("f", "o2")
	state := func() []string {
		return append(append(w.keys(), w.parked()...), column[string](t, w.db.DB, "SELECT message_id FROM inbox_dead")...)
	}
	before := state()
	w.exec("ALTER TABLE oncebox_audit ADD CHECK (actor <> 'ann')")
	require.Error(t, w.box.Dead().Replay(t.Context(), key, ann))
	require.Error(t, w.box.Dead().Discard(t.Context(), key, ann))
	require.Error(t, w.box.Parked().RetryNow(t.Context(), head, ann))
	require.Error(t, w.box.Parked().GiveUp(t.Context(), head, ann))
	require.Equal(t, before, state())

	bob := operator.By{Actor: "bob", Reason: "r"}
	w.exec("ALTER TABLE inbox_parked ADD CHECK (message_id <> 'a')")
	require.Error(t, w.box.Dead().Replay(t.Context(), key, bob))
	require.Zero(t, w.count("oncebox_audit"))
	require.Equal(t, before, state())
	require.NoError(t, w.box.Dead().Discard(t.Context(), key, bob))
	require.Equal(t, 1, w.count("oncebox_audit"))
}

func TestOldAuditIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, key := range w.kill(w.box, "billing", unordered("a"), unordered("b")) {
		require.NoError(t, w.box.Dead().Discard(t.Context(), key, ann))
	}
	w.exec("UPDATE oncebox_audit SET at = now() - interval '401 days' WHERE message_id = 'a'")
	require.NoError(t, newBox(w.units, &inbox.Config{AuditRetention: inbox.KeepForever}).Clean(t.Context()))
	require.Equal(t, 2, w.count("oncebox_audit"))
	require.NoError(t, w.box.Clean(t.Context()))
	require.Equal(t, []string{"b"}, column[string](t, w.db.DB, "SELECT message_id FROM oncebox_audit"))
}

func TestOldAuditIsDeletedInBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`INSERT INTO oncebox_audit (part, at, actor, action, events, consumer, tenant_id, topic, event_type)
		SELECT 'inbox', now() - CASE WHEN n = 1 THEN interval '1 day' ELSE interval '500 days' END, 'ann', 'discard', 1, 'c', 't', 'order', 'e'
		FROM generate_series(1, 12000) n`)
	require.NoError(t, w.box.Clean(t.Context()))
	require.Equal(t, 1, w.count("oncebox_audit"))
}
