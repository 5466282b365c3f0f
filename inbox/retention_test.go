package inbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

// idAt is a UUIDv7 of a time.
func idAt(t *testing.T, at time.Time) string {
	t.Helper()
	id := uuid.MustParse(newID(t))
	for i := range 6 {
		id[i] = byte(at.UnixMilli() >> (40 - 8*i))
	}
	return id.String()
}

func child(at time.Time) string { return "inbox_" + at.UTC().Format("20060102") }

const day = 24 * time.Hour

// where returns the child partition of each entry.
func (w *world) where(id string) string {
	w.t.Helper()
	list := column[string](w.t, w.db.DB, "SELECT tableoid::regclass::text FROM inbox WHERE message_key = ?", id)
	require.Len(w.t, list, 1)
	return list[0]
}

func (w *world) children() []string {
	w.t.Helper()
	return column[string](w.t, w.db.DB, `SELECT inhrelid::regclass::text FROM pg_inherits
		WHERE inhparent = 'inbox'::regclass AND inhrelid::regclass::text ~ '^inbox_[0-9]{8}$' ORDER BY 1`)
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	_, err := w.db.ExecContext(w.t.Context(), query, args...)
	require.NoError(w.t, err)
}

// awayFromMidnight waits for the next day if it is about to begin: a test that counts days must not see two of them.
func awayFromMidnight() {
	if left := time.Until(time.Now().Add(day).Truncate(day)); left < 2*time.Minute {
		<-time.After(left + time.Second)
	}
}

func TestEntriesLieInTheChildOfTheirDay(t *testing.T) {
	t.Parallel()
	awayFromMidnight()
	w := newWorld(t)
	require.NoError(t, w.box.EnsurePartitions(t.Context()))
	require.NoError(t, w.box.EnsurePartitions(t.Context()), "they are there")
	require.Len(t, w.children(), 9)

	h := w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
	now := time.Now()
	for n, c := range []struct {
		at   time.Time
		want string
	}{
		{now.Add(-day), child(now.Add(-day))},
		{now, child(now)},
		{now.Add(2 * day), child(now.Add(2 * day))},
		{now.Add(-3 * day), "inbox_default"},
		{now.Add(30 * day), "inbox_default"},
		{time.UnixMilli(0), "inbox_default"},
	} {
		m := ordered(idAt(t, c.at), "o1")
		require.NoError(t, h.Handle(t.Context(), m))
		require.NoError(t, h.Handle(t.Context(), m))
		require.Equal(t, c.want, w.where(m.ID))
		require.Len(t, w.effects(), n+1, "wherever it lies, a copy finds it")
	}
}

// Foreign ids may be many, and must not slow down what is done to the DEFAULT child.
func TestForeignIDsHaveAChildOfTheirOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
	for range 2 {
		require.NoError(t, h.Handle(t.Context(), unordered("persistent://public/default/ticks 12:7:-1")))
	}
	require.Equal(t, []string{"inbox_foreign"}, column[string](t, w.db.DB, "SELECT tableoid::regclass::text FROM inbox"))
	require.Len(t, w.effects(), 1)
}

// A consumer was started before the partitions, or its clock and that of a sender differ.
func TestEntriesThatWereFasterThanTheirChildAreFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
	m := ordered(newID(t), "o1")
	require.NoError(t, h.Handle(t.Context(), m))
	require.Equal(t, "inbox_default", w.where(m.ID))
	require.NoError(t, w.box.EnsurePartitions(t.Context()))
	require.NoError(t, h.Handle(t.Context(), m))
	require.Len(t, w.effects(), 1)
}

func TestCleanDropsWhatIsOlderThanTheRetention(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	h := w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
	age := map[string]time.Duration{}
	handle := func(id string, handled time.Duration) {
		require.NoError(t, h.Handle(t.Context(), unordered(id)))
		age[id] = handled
		key := id
		if _, err := uuid.Parse(id); err != nil {
			key = column[string](t, w.db.DB, "SELECT message_key::text FROM inbox_foreign ORDER BY processed_at DESC LIMIT 1")[0]
		}
		w.exec("UPDATE inbox SET processed_at = now() - ?::interval WHERE message_key = ?", fmt.Sprintf("%d s", int(handled.Seconds())), key)
	}
	for _, ago := range []time.Duration{13 * day, 12 * day, 11*day + time.Hour, 9 * day} {
		w.exec("SELECT inbox_make_partition(?)", now.Add(-ago).UTC().Format(time.DateOnly))
	}
	handle(idAt(t, now.Add(-13*day)), 13*day)
	handle(idAt(t, now.Add(-9*day)), 9*day)
	handle(idAt(t, now.Add(-40*day)), 11*day) // without a child
	handle(idAt(t, now.Add(-41*day)), 9*day)
	handle("4711", 11*day)
	handle("4712", 9*day)
	require.Equal(t, 6, w.entries())

	require.NoError(t, w.box.Clean(t.Context()))
	require.Equal(t, 3, w.entries())
	for id, handled := range age {
		before := len(w.effects())
		require.NoError(t, h.Handle(t.Context(), unordered(id)))
		if handled > 10*day {
			require.Len(t, w.effects(), before+1, "%s is forgotten", id)
		} else {
			require.Len(t, w.effects(), before, "%s is remembered", id)
		}
	}
	require.NotContains(t, w.children(), child(now.Add(-13*day)))
	require.Contains(t, w.children(), child(now.Add(-9*day)))
	require.Contains(t, w.children(), child(now.Add(7*day)), "it also makes those ahead")
}

// A consumer that was down for days handles old messages; their copies may still come for as long as any others.
func TestCleanKeepsAChildInWhichAnEntryIsYoung(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old, older := time.Now().Add(-20*day), time.Now().Add(-21*day)
	w.exec("SELECT inbox_make_partition(?)", old.UTC().Format(time.DateOnly))
	w.exec("SELECT inbox_make_partition(?)", older.UTC().Format(time.DateOnly))
	m := ordered(idAt(t, old), "o1")
	require.NoError(t, w.box.Wrap("billing", messaging.HandlerFunc(w.effect)).Handle(t.Context(), m))

	require.NoError(t, w.box.Clean(t.Context()))
	require.Equal(t, child(old), w.where(m.ID))
	require.NotContains(t, w.children(), child(older))

	w.exec("UPDATE inbox SET processed_at = now() - interval '11 days'")
	require.NoError(t, w.box.Clean(t.Context()))
	require.Zero(t, w.entries())
}

// A consumer that was away for longer than the retention gets the messages again that it acknowledged last,
// when it comes back.
func TestCleanWaitsForAConsumerThatIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	days := []time.Time{time.Now().Add(-42 * day), time.Now().Add(-41 * day), time.Now().Add(-20 * day)}
	for _, d := range days {
		w.exec("SELECT inbox_make_partition(?)", d.UTC().Format(time.DateOnly))
	}
	away := w.box.Wrap("away", messaging.HandlerFunc(w.effect))
	other := w.box.Wrap("other", messaging.HandlerFunc(w.effect))
	last := []*messaging.Message{ordered(idAt(t, days[1]), "o1"), unordered("4711"), ordered(idAt(t, time.Now().Add(-50*day)), "o2")}
	for _, m := range last {
		require.NoError(t, away.Handle(t.Context(), m))
	}
	for _, d := range days {
		require.NoError(t, other.Handle(t.Context(), ordered(idAt(t, d), "o3")))
	}
	w.exec("UPDATE inbox SET processed_at = now() - interval '41 days'")
	w.exec("INSERT INTO inbox_consumer (consumer, active_at) VALUES ('away', now() - interval '40 days'), ('other', now())")
	require.NoError(t, w.box.Clean(t.Context()))
	require.Equal(t, 4, w.entries(), "what is in the same child stays as well")
	require.NotContains(t, w.children(), child(days[0]))
	require.NotContains(t, w.children(), child(days[2]), "a day that is kept keeps no other")
	for _, m := range last {
		require.NoError(t, away.Handle(t.Context(), m))
	}
	require.Len(t, w.effects(), 6, "nothing happened twice")

	w.exec("UPDATE inbox_consumer SET beat_at = now() - interval '4 minutes' WHERE consumer = 'away'")
	require.NoError(t, w.box.Consumers().Forget(t.Context(), "away", ann))
	require.NoError(t, w.box.Clean(t.Context()))
	require.Zero(t, w.entries())
}

func TestConsumersThatRunAreNoted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
	w.box.Wrap("shipping", messaging.HandlerFunc(w.effect))
	w.exec("INSERT INTO inbox_consumer (consumer, beat_at) VALUES ('billing', now() - interval '1 year')")
	runParked(t, w.box)
	await.True(t, func() bool {
		return len(column[string](t, w.db.DB, "SELECT consumer FROM inbox_consumer WHERE beat_at > now() - interval '1 hour'")) == 2
	}, "both consumers are noted")
}

// It runs again, the cleaner runs, and then the broker brings the messages that it had acknowledged before
// it went away.
func TestEntriesOfAConsumerThatIsBackAreKeptForADay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	last := time.Now().Add(-12 * day)
	w.exec("SELECT inbox_make_partition(?)", last.UTC().Format(time.DateOnly))
	h := w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
	messages := []*messaging.Message{ordered(idAt(t, last), "o1"), unordered("4711")}
	for _, m := range messages {
		require.NoError(t, h.Handle(t.Context(), m))
	}
	w.exec("UPDATE inbox SET processed_at = now() - interval '12 days'")
	w.exec("INSERT INTO inbox_consumer (consumer, active_at, beat_at) VALUES ('billing', now() - interval '12 days', now() - interval '12 days')")
	beat := func() {
		t.Helper()
		w.exec("UPDATE inbox_consumer SET beat_at = beat_at - interval '2 minutes'")
		stop := runParked(t, w.box)
		await.True(t, func() bool {
			return column[bool](t, w.db.DB, "SELECT beat_at > now() - interval '1 minute' FROM inbox_consumer")[0]
		}, "the consumer is noted again")
		stop()
		require.NoError(t, w.box.Clean(t.Context()))
	}
	for range 2 {
		beat()
		require.Equal(t, 2, w.entries())
	}
	for _, m := range messages {
		require.NoError(t, h.Handle(t.Context(), m))
	}
	require.Len(t, w.effects(), 2, "nothing happened twice")
	w.exec("UPDATE inbox_consumer SET back_at = now() - interval '25 hours'")
	beat()
	require.Zero(t, w.entries())
}

func TestCleanDeletesInBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`INSERT INTO inbox SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'c', 't', 's', now() - interval '11 days'
		FROM generate_series(1, 12000) n`)
	require.NoError(t, w.box.Clean(t.Context()))
	require.Zero(t, w.entries())
}

func TestKeepForever(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec("SELECT inbox_make_partition('2020-01-01')")
	for _, day := range []string{"2020-01-01", "2019-01-01"} {
		w.exec("INSERT INTO inbox VALUES (inbox_day_bound(?), 'c', 't', 's', ?)", day, day)
	}
	require.NoError(t, newBox(w.units, &inbox.Config{Retention: inbox.KeepForever}).Clean(t.Context()))
	require.Equal(t, 2, w.entries())
}

// A handler of a message of that day holds a lock that emptying its child has to wait for. It gives up soon, because others would
// have to wait behind it.
func TestCleanGivesWayToHandlers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.box.EnsurePartitions(t.Context()))
	for _, day := range []string{"2020-01-01", "2020-01-02"} {
		w.exec("SELECT inbox_make_partition(?)", day)
		w.exec("INSERT INTO inbox VALUES (inbox_day_bound(?), 'c', 't', 's', ?)", day, day)
	}
	m := ordered(idAt(t, time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)), "o1")
	err := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		require.ErrorContains(t, w.box.Clean(context.WithoutCancel(t.Context())), "in use")
		return w.effect(ctx, m)
	})).Handle(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, child(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)), w.where(m.ID))
	require.Equal(t, 2, w.entries(), "the other child was emptied all the same")
	require.NoError(t, w.box.Clean(t.Context()))
	require.NotContains(t, w.children(), "inbox_20200102")
	require.Len(t, w.effects(), 1)
}

func TestRunCleansUntilItIsStopped(t *testing.T) {
	t.Parallel()
	awayFromMidnight()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.box.RunCleaning(ctx) }()
	await.True(t, func() bool { return len(w.children()) == 9 }, "nine children")
	cancel()
	require.NoError(t, <-done)
}

func TestConfigValidate(t *testing.T) {
	for _, good := range []inbox.Config{{}, {Retention: day}, {Retention: inbox.KeepForever}, {Schema: `My "schema"`}} {
		require.NoError(t, good.Validate())
	}
	bad := inbox.Config{Retention: time.Hour, Schema: "a\x00b"}
	require.ErrorContains(t, bad.Validate(), "Config.Retention")
	require.ErrorContains(t, bad.Validate(), "Config.Schema")
	require.ErrorContains(t, (&inbox.Config{Retention: -2}).Validate(), "Config.Retention")
}

// Some handler always runs, and each holds a lock of the table.
func TestCleanFreesSpaceWhileHandlersRun(t *testing.T) {
	t.Parallel()
	awayFromMidnight()
	w := newWorld(t)
	old := time.Now().Add(-20 * day)
	w.exec("SELECT inbox_make_partition(?)", old.UTC().Format(time.DateOnly))
	require.NoError(t, w.box.Wrap("billing", messaging.HandlerFunc(w.effect)).Handle(t.Context(), ordered(idAt(t, old), "o1")))
	w.exec("UPDATE inbox SET processed_at = now() - interval '11 days'")
	require.NoError(t, w.box.EnsurePartitions(t.Context()))
	began, end := make(chan struct{}), make(chan struct{})
	handled := make(chan error, 1)
	slow := w.box.Wrap("shipping", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		close(began)
		<-end
		return nil
	}))
	m := ordered(newID(t), "o2")
	go func() { handled <- slow.Handle(t.Context(), m) }()
	<-began
	err := w.box.Clean(t.Context())
	close(end)
	require.NoError(t, err)
	require.NoError(t, <-handled)
	require.Zero(t, column[int](t, w.db.DB, "SELECT pg_relation_size(?::regclass)", child(old))[0])
	require.Contains(t, w.children(), child(old), "nobody waited for the handler")
	require.NoError(t, w.box.Clean(t.Context()))
	require.NotContains(t, w.children(), child(old))
	require.Equal(t, 1, w.entries())
}

// The entry of a message of that day is made while the cleaner looks.
func TestEntryThatIsMadeWhileItsChildIsEmptiedStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := time.Now().Add(-20 * day)
	date := old.UTC().Format(time.DateOnly)
	w.exec("SELECT inbox_make_partition(?)", date)
	m := ordered(idAt(t, old), "o1")
	began, end := make(chan struct{}), make(chan struct{})
	handled := make(chan error, 1)
	h := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		close(began)
		<-end
		return w.effect(ctx, m)
	}))
	go func() { handled <- h.Handle(t.Context(), m) }()
	<-began
	emptied := make(chan bool, 1)
	go func() {
		var ok bool
		if err := w.db.NewRaw("SELECT inbox_empty_partition(?, '10 days', '10 min')", date).Scan(t.Context(), &ok); err != nil {
			ok = true
		}
		emptied <- ok
	}()
	await.True(t, func() bool {
		return column[bool](t, w.db.DB, "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = ?::regclass AND NOT granted)", child(old))[0]
	}, "the cleaner waits for the handler")
	close(end)
	require.NoError(t, <-handled)
	require.False(t, <-emptied)
	require.Equal(t, 1, w.entries())
	require.False(t, column[bool](t, w.db.DB, "SELECT inbox_drop_partition(?)", date)[0], "it is not empty")
	require.NoError(t, h.Handle(t.Context(), m))
	require.Len(t, w.effects(), 1)
}

// The look takes as long as the child is large, and must keep nobody from reading.
func TestChildIsReadWhileTheCleanerLooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := time.Now().Add(-20 * day)
	date := old.UTC().Format(time.DateOnly)
	w.exec("SELECT inbox_make_partition(?)", date)
	require.NoError(t, w.box.Wrap("billing", messaging.HandlerFunc(w.effect)).Handle(t.Context(), ordered(idAt(t, old), "o1")))
	w.exec("UPDATE inbox SET processed_at = now() - interval '11 days'")
	reader, err := w.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer reader.Rollback()
	require.Len(t, column[int](t, reader, "SELECT 1 FROM "+child(old)), 1)
	emptied := make(chan error, 1)
	go func() {
		_, err := w.db.ExecContext(t.Context(), "SELECT inbox_empty_partition(?, '10 days', '10 min')", date)
		emptied <- err
	}()
	modes := func(granted bool) []string {
		return column[string](t, w.db.DB, `SELECT mode FROM pg_locks WHERE relation = ?::regclass AND granted = ? AND mode LIKE '%Exclusive%'`,
			child(old), granted)
	}
	await.True(t, func() bool { return len(modes(false)) == 1 }, "the cleaner waits for the reader")
	require.Equal(t, []string{"AccessExclusiveLock"}, modes(false), "only to empty it")
	require.Contains(t, modes(true), "ShareRowExclusiveLock", "the look is behind it")
	require.NoError(t, reader.Rollback())
	require.NoError(t, <-emptied)
	require.Zero(t, w.entries())
}
