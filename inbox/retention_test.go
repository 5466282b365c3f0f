package inbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
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

// where tells which child each entry lies in.
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

func TestEntriesLieInTheChildOfTheirDay(t *testing.T) {
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

func TestCleanDeletesInBatches(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO inbox SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'c', 't', 's', now() - interval '11 days'
		FROM generate_series(1, 12000) n`)
	require.NoError(t, w.box.Clean(t.Context()))
	require.Zero(t, w.entries())
}

func TestKeepForever(t *testing.T) {
	w := newWorld(t)
	w.exec("SELECT inbox_make_partition('2020-01-01')")
	for _, day := range []string{"2020-01-01", "2019-01-01"} {
		w.exec("INSERT INTO inbox VALUES (inbox_day_bound(?), 'c', 't', 's', ?)", day, day)
	}
	require.NoError(t, newBox(w.units, &inbox.Config{Retention: inbox.KeepForever}).Clean(t.Context()))
	require.Equal(t, 2, w.entries())
}

// Handlers hold locks that a DROP has to wait for. It gives up soon, because they would have to wait behind it.
func TestCleanGivesWayToHandlers(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.box.EnsurePartitions(t.Context()))
	w.exec("SELECT inbox_make_partition('2020-01-01')")
	err := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		require.ErrorContains(t, w.box.Clean(context.WithoutCancel(t.Context())), "in use")
		return w.effect(ctx, m)
	})).Handle(t.Context(), ordered(newID(t), "o1"))
	require.NoError(t, err)
	require.Contains(t, w.children(), "inbox_20200101")
	require.NoError(t, w.box.Clean(t.Context()))
	require.NotContains(t, w.children(), "inbox_20200101")
	require.Len(t, w.effects(), 1)
}

func TestRunCleansUntilItIsStopped(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.box.Run(ctx) }()
	require.Eventually(t, func() bool { return len(w.children()) == 9 }, 20*time.Second, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}

func TestConfigValidate(t *testing.T) {
	for _, good := range []inbox.Config{{}, {Retention: day}, {Retention: inbox.KeepForever}, {Schema: `My "schema"`}} {
		require.NoError(t, good.Validate())
	}
	bad := inbox.Config{Retention: time.Hour, Schema: "it's"}
	require.ErrorContains(t, bad.Validate(), "Config.Retention")
	require.ErrorContains(t, bad.Validate(), "Config.Schema")
	require.ErrorContains(t, (&inbox.Config{Retention: -2}).Validate(), "Config.Retention")
}
