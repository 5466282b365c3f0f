package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/presence"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
)

// fails has a consumer fail with one message of a key, and then wait for an hour.
func (w *world) fails(consumer, key string, err error) *messaging.Message {
	w.t.Helper()
	m := ordered(newID(w.t), key)
	h := w.box.Wrap(consumer, messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return messaging.RetryAfter(time.Hour, err) }))
	require.NoError(w.t, h.Handle(w.t.Context(), m))
	return m
}

// triedAgain has every key that failed tried once more.
func (w *world) triedAgain() {
	w.t.Helper()
	w.exec("UPDATE inbox_key SET due_at = now() WHERE state = 'FAILED'")
	stop := runParked(w.t, w.box)
	await.True(w.t, func() bool { return w.count("inbox_key WHERE due_at < now() + interval '30 minutes'") == 0 }, "each key waits for its next try")
	stop()
}

func (w *world) explain(statement string, args ...any) string {
	w.t.Helper()
	rows := w.box.Handle().AdHoc().Query(w.t.Context(), w.db.DB, "EXPLAIN "+statement, args...)
	plan, err := pgsql.Collect(rows, func(scan pgsql.Scan, line *string) error { return scan(line) })
	require.NoError(w.t, err)
	return strings.Join(plan, "\n")
}

func (w *world) groups() []failures.Group {
	w.t.Helper()
	list, err := w.operator().Failures().List(w.t.Context())
	require.NoError(w.t, err)
	return list
}

// An outage that stops 400 keys is one group, beside three others.
func TestFailuresAreGroupedByCause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const many = 400
	for n := range many {
		w.fails("mailer", fmt.Sprint("o", n), fmt.Errorf("dial tcp 10.0.0.%d:%d: connection refused", n%250, 1000+n))
	}
	w.fails("mailer", "o0", errors.New("is behind the first of its key, and was not tried"))
	w.fails("mailer", "p1", errors.New("no such address"))
	w.fails("billing", "p2", errors.New("dial tcp 10.0.0.1:25: connection refused"))
	w.kill(w.box, "billing", ordered(newID(t), "p3"), ordered(newID(t), "p4"))

	list := w.groups()
	require.Len(t, list, 4)
	byCause := map[string]failures.Group{}
	for _, g := range list {
		byCause[g.Consumer+": "+g.Cause] = g
		require.Equal(t, "order.placed", g.Type)
		require.Empty(t, g.Topic, "it is that of a relay")
	}
	outage := byCause["mailer: dial tcp …: connection refused"]
	require.Equal(t, many, outage.Failing.Count)
	require.False(t, outage.Failing.More)
	require.Zero(t, outage.Dead)
	require.Equal(t, outage.Failing.First, outage.First())
	require.True(t, outage.Last().After(outage.First()))
	require.WithinDuration(t, time.Now().Add(time.Hour), outage.Failing.Next, 5*time.Minute)
	require.Equal(t, "dial tcp 10.0.0.149:1399: connection refused", outage.Example().Error, "the latest")
	require.Equal(t, "mailer", outage.Example().Ref.Consumer)
	require.Equal(t, []string{presence.Signature()}, outage.Failing.FailedBy)
	require.Equal(t, presence.Signature(), outage.Example().FailedBy)
	require.True(t, outage.Example().Holds)
	require.Equal(t, 1, byCause["mailer: no such address"].Failing.Count)
	require.Equal(t, 1, byCause["billing: dial tcp …: connection refused"].Failing.Count)
	require.NotEqual(t, outage.Fingerprint, byCause["billing: dial tcp …: connection refused"].Fingerprint)
	dead := list[0]
	require.Equal(t, 2, dead.Dead.Count)
	require.Zero(t, dead.Failing)
	require.Zero(t, dead.Dead.Next)
	require.Equal(t, presence.Signature(), dead.Dead.Example.FailedBy)

	one, err := w.operator().Failures().Show(t.Context(), outage.Fingerprint)
	require.NoError(t, err)
	require.Equal(t, outage, one)
	_, err = w.operator().Failures().Show(t.Context(), "0123456789abcdef")
	require.ErrorIs(t, err, failures.ErrUnknown)

	// A group is what operators act on.
	n, err := w.operator().Parked().RetryAll(t.Context(), parked.Filter{Fingerprints: []string{outage.Fingerprint}}, ann, nil)
	require.NoError(t, err)
	require.EqualValues(t, many, n)
	require.Len(t, w.groups(), 3, "it has no failure until one of its messages is tried and fails again")
	n, err = w.operator().Dead().ReplayAll(t.Context(), operator.DeadFilter{Fingerprint: dead.Fingerprint}, ann, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
	require.Len(t, w.groups(), 2)
	n, err = w.operator().Dead().ReplayAll(t.Context(), operator.DeadFilter{Fingerprint: outage.Fingerprint}, ann, nil)
	require.NoError(t, err)
	require.Zero(t, n)
}

// The fingerprint of a message is that of its last error. The time since it fails for this cause begins anew with another cause.
func TestFingerprintFollowsTheError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cause := errors.New("smtp 1 away")
	h := messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return messaging.RetryAfter(time.Hour, cause) })
	w.box.Wrap("mailer", h)
	m := ordered(newID(t), "o1")
	require.NoError(t, w.box.Wrap("mailer", h).Handle(t.Context(), m))
	first := w.groups()[0]
	again := func() failures.Group {
		t.Helper()
		w.triedAgain()
		list := w.groups()
		require.Len(t, list, 1)
		return list[0]
	}
	cause = errors.New("smtp 2 away")
	second := again()
	require.Equal(t, first.Fingerprint, second.Fingerprint)
	require.Equal(t, first.First(), second.First())
	require.Equal(t, "smtp 2 away", second.Example().Error)
	cause = errors.New("no such address")
	third := again()
	require.NotEqual(t, first.Fingerprint, third.Fingerprint)
	require.True(t, third.First().After(first.First()))
	cause = messaging.Permanent(cause)
	dead := again()
	require.Equal(t, third.Fingerprint, dead.Fingerprint, "a dead letter stays with its cause")
	require.Equal(t, 1, dead.Dead.Count)

	// A message that is given up before it was tried has a cause all the same.
	for _, letter := range w.dead() {
		require.NoError(t, w.operator().Dead().Replay(t.Context(), letter.Key, ann))
		require.NoError(t, w.operator().Parked().GiveUp(t.Context(), letter.Key, ann))
	}
	require.Equal(t, "given up by ann", w.groups()[0].Cause)
}

// A note stays when the failures are gone. A group that is archived is back with the next failure, and no earlier.
func TestNotesAndArchive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	groups := w.operator().Failures()
	w.fails("mailer", "o1", errors.New("smtp away"))
	fingerprint := w.groups()[0].Fingerprint
	require.ErrorContains(t, groups.Archive(ctx, fingerprint, operator.By{Actor: "bob"}), "By.Reason is empty")
	require.ErrorContains(t, groups.Note(ctx, fingerprint, "x", operator.By{}), "By.Actor is empty")
	require.ErrorIs(t, groups.Unarchive(ctx, fingerprint, ann), failures.ErrUnknown)
	for _, unknown := range []error{groups.Archive(ctx, "0", ann), groups.Note(ctx, "0", "x", ann), groups.Unarchive(ctx, "0", ann)} {
		require.ErrorIs(t, unknown, failures.ErrUnknown)
	}
	require.Zero(t, w.count("oncebox_audit"))
	require.Zero(t, w.count("oncebox_failure"))

	require.NoError(t, groups.Note(ctx, fingerprint, "restarts at 02:30\x00", ann))
	require.NoError(t, groups.Archive(ctx, fingerprint, operator.By{Actor: "bob", Reason: "known"}))
	one, err := groups.Show(ctx, fingerprint)
	require.NoError(t, err)
	require.Equal(t, []any{"restarts at 02:30\uFFFD", "ann", "bob", "known", true, false},
		[]any{one.Note, one.NotedBy, one.ArchivedBy, one.ArchivedWhy, one.IsArchived(), one.IsBack()})

	// The message that was there is tried again and fails: nothing new.
	w.triedAgain()
	require.True(t, w.groups()[0].IsArchived())
	w.fails("mailer", "o2", errors.New("smtp away"))
	back := w.groups()[0]
	require.Equal(t, []any{false, true, 2, "bob"}, []any{back.IsArchived(), back.IsBack(), back.Failing.Count, back.ArchivedBy})
	require.NoError(t, groups.Archive(ctx, fingerprint, ann))
	require.True(t, w.groups()[0].IsArchived())
	require.NoError(t, groups.Unarchive(ctx, fingerprint, ann))
	require.Equal(t, []bool{false, false}, []bool{w.groups()[0].IsArchived(), w.groups()[0].IsBack()})
	require.NoError(t, groups.Archive(ctx, fingerprint, ann))

	// All is mended, and the note is there. A dead letter of the same cause brings the group back.
	w.exec("DELETE FROM inbox_parked")
	w.exec("DELETE FROM inbox_key")
	require.Empty(t, w.groups())
	mended, err := groups.Show(ctx, fingerprint)
	require.NoError(t, err)
	require.Equal(t, []any{"mailer", "smtp away", "order.placed", "restarts at 02:30\uFFFD"}, []any{mended.Consumer, mended.Cause, mended.Type, mended.Note})
	require.ErrorIs(t, groups.Archive(ctx, fingerprint, ann), failures.ErrUnknown)
	h := w.box.Wrap("mailer", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return messaging.Permanent(errors.New("smtp away")) }))
	require.NoError(t, h.Handle(ctx, ordered(newID(t), "o3")))
	require.True(t, w.groups()[0].IsBack())
	require.NoError(t, groups.Note(ctx, fingerprint, "", ann))
	require.Empty(t, w.groups()[0].Note)

	entries, err := w.operator().Audit(ctx, operator.AuditFilter{Fingerprint: fingerprint}, nil, 0)
	require.NoError(t, err)
	var said []string
	for _, e := range slices.Backward(entries) {
		require.Equal(t, []string{"mailer", "order.placed", fingerprint}, []string{e.Consumer, e.Type, e.Fingerprint})
		said = append(said, e.Actor+" "+string(e.Action)+" "+e.Reason)
	}
	require.Equal(t, []string{
		"ann note restarts at 02:30\uFFFD", "bob archive known", "ann archive tried it", "ann unarchive tried it", "ann archive tried it", "ann note ",
	}, said)
}

// However many dead letters and failing keys there are, a list goes from one fingerprint to the next and reads no more rows than it counts.
func TestGroupsAreReadByIndexes(t *testing.T) {
	w := newWorld(t)
	for _, statement := range []string{
		`INSERT INTO inbox_dead (message_key, consumer, tenant_id, source, message_id, event_type, topic, content_type, payload, error_message, key_lock,
				seq, died_at, fingerprint)
			SELECT gen_random_uuid(), 'c' || n % 7, 't', 's', n, 'e', 'o', '', '', 'no ' || n % 7, n, n, now() - n * interval '1 s',
				lpad((CASE WHEN n % 2 = 0 THEN 0 ELSE n % 7 END)::text, 16, '0') FROM generate_series(1, 70000) n`,
		`INSERT INTO inbox_parked (message_key, consumer, tenant_id, source, message_id, event_type, topic, content_type, payload, error_message, key_lock,
				seq, attempts, cause_since, fingerprint)
			SELECT message_key, consumer, tenant_id, source, message_id, event_type, topic, content_type, payload,
				CASE WHEN seq % 2 = 0 THEN error_message ELSE '' END, key_lock, seq, 1, died_at,
				CASE WHEN seq % 2 = 0 THEN fingerprint ELSE '' END FROM inbox_dead`,
		`INSERT INTO inbox_key (consumer, key_lock, tenant_id, ordering_key, state, due_at)
			SELECT consumer, key_lock, tenant_id, key_lock, CASE WHEN seq % 2 = 0 THEN 'FAILED' ELSE 'WAITING' END, now() FROM inbox_parked`,
		"VACUUM ANALYZE inbox_dead", "VACUUM ANALYZE inbox_parked", "VACUUM ANALYZE inbox_key",
	} {
		w.exec(statement)
	}
	list := w.groups()
	require.Len(t, list, 7)
	failing, dead := 0, 0
	for _, g := range list {
		failing, dead = failing+g.Failing.Count, dead+g.Dead.Count
		require.Equal(t, g.Fingerprint == "0000000000000000", g.Failing.More)
		require.True(t, g.Dead.More)
	}
	require.Equal(t, []int{failures.Counted, failures.Counted / 7 * 7}, []int{failing, dead}, "one group of failing messages, and seven of dead letters")
	_, err := w.db.Exec("UPDATE inbox_key SET state = 'WAITING' WHERE key_lock % 10 = 0; DELETE FROM inbox_parked WHERE key_lock > 9000")
	require.NoError(t, err)
	group, err := w.operator().Failures().Show(t.Context(), "0000000000000000")
	require.NoError(t, err)
	require.False(t, group.Failing.More)
	require.Equal(t, 4500-2000/5, group.Failing.Count, "of the first 2,000 those count whose keys fail, and all later ones")
	for _, table := range []failures.Table{store.FailingMessages(), store.DeadMessages()} {
		for what, of := range map[string]struct {
			statement string
			args      []any
		}{
			"fingerprints": {table.Fingerprints(), []any{failures.Most}},
			"tallies":      {table.Tallies(), []any{[]string{"0000000000000001", "0000000000000002"}, 1000, 4000}},
		} {
			plan := w.explain(of.statement, of.args...)
			require.NotContains(t, plan, "Seq Scan on inbox", what)
			require.NotContains(t, plan, "Sort", what)
			require.Contains(t, plan, "_cause on inbox", what)
		}
	}
}
