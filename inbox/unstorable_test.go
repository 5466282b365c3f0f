package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

// A column of 32 bits takes no number of 64.
func TestNumbersThatNoColumnTakesAreClamped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(nil)
	message := func(id string) *messaging.Message {
		m := ordered(id, id)
		m.SchemaVersion, m.Sequence, m.AggregateVersion = math.MaxInt64, math.MaxInt64, math.MinInt64
		m.OccurredAt = time.Date(-9999, 1, 1, 0, 0, 0, 0, time.UTC)
		return m
	}
	require.NoError(t, box.Wrap("dead", gaveUp()).Handle(t.Context(), message("a")))
	later := messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return messaging.RetryAfter(time.Hour, errNotNow) })
	require.NoError(t, box.Wrap("parked", later).Handle(t.Context(), message("b")))
	require.NoError(t, box.Wrap("stored", later, inbox.StoreFirst()).Handle(t.Context(), message("c")))
	d := w.dead()[0].Envelope
	require.Equal(t, math.MaxInt32, d.SchemaVersion)
	require.EqualValues(t, math.MaxInt64, d.Sequence)
	require.EqualValues(t, math.MinInt64, d.AggregateVersion)
	require.True(t, d.OccurredAt.IsZero())
	require.Equal(t, []byte(`{"a":1}`), d.Payload)
	require.Len(t, w.listParked(parked.Filter{}, 10), 2)
}

// refusing makes tables refuse the content of a message, as PostgreSQL does for reasons that nobody foresees.
func (w *world) refusing(table, condition string) {
	w.exec(fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT refusing CHECK (%s)", table, condition))
}

func large(m *messaging.Message) *messaging.Message {
	m.Payload = []byte(strings.Repeat("x", 100<<10))
	m.Metadata = event.Metadata{event.CorrelationID: "c"}
	return m
}

func TestDeadLetterThatIsRefusedIsStoredWithLess(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.refusing("inbox_dead", "octet_length(payload) <= 64 * 1024 AND sequence = 0")
	h := w.box.Wrap("billing", gaveUp())
	for range 2 {
		require.NoError(t, h.Handle(t.Context(), large(ordered("4711", "o1"))), "the copy is a duplicate")
	}
	require.Len(t, w.dead(), 1)
	d := w.dead()[0]
	require.Equal(t, "4711", d.Envelope.ID)
	require.Equal(t, "order.placed", d.Envelope.Type)
	require.Equal(t, "shop", d.Key.Source)
	require.Equal(t, strings.Repeat("x", 64<<10), string(d.Envelope.Payload))
	require.Contains(t, d.Error, "no such customer")
	require.Contains(t, d.Error, "refusing", "and why it is not as it came")
	require.True(t, d.Holds)

	// A part of a payload is no message: nobody handles it.
	box := w.hasty(nil)
	box.Wrap("billing", messaging.HandlerFunc(w.effect))
	require.NoError(t, w.operator().Dead().Replay(t.Context(), d.Key, ann))
	runParked(t, box)
	await.True(t, func() bool { return w.count("inbox_dead WHERE error_message LIKE '%cannot be read%'") == 1 }, "a dead letter that cannot be read")
	require.Empty(t, w.effects())
}

func TestNamesThatAreRefusedAreStoredInASCII(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.refusing("inbox", "tenant_id ~ '^[ -~]*$'")
	h := w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
	for _, tenant := range []string{"Ж", "Ж", "Щ"} {
		m := ordered("Ю", "o1")
		m.TenantID = tenant
		require.NoError(t, h.Handle(t.Context(), m))
	}
	require.NoError(t, h.Handle(t.Context(), ordered("good", "o1")))
	require.Equal(t, []string{"good"}, w.effects())
	require.Len(t, w.dead(), 2, "each once, and none is taken for another")
	for _, d := range w.dead() {
		require.Equal(t, "?", d.Key.TenantID)
		require.Equal(t, "?", d.Envelope.ID)
		require.False(t, d.Holds)
	}
}

func TestMessageThatCannotBeParkedIsADeadLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.refusing("inbox_parked", "octet_length(payload) < 1000")
	box := w.hasty(func(cfg *inbox.Config) { cfg.Retry.Tries = 1 })
	var calls atomic.Int64
	failing := messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		calls.Add(1)
		return errNotNow
	})
	require.NoError(t, box.Wrap("failing", failing).Handle(t.Context(), large(ordered("a", "o1"))))
	require.NoError(t, box.Wrap("durable", failing, inbox.StoreFirst()).Handle(t.Context(), large(ordered("b", "o2"))))
	require.NoError(t, box.WrapLeased("leased", failing).Handle(t.Context(), large(ordered("c", "o3"))))
	require.EqualValues(t, 2, calls.Load(), "the durable one would have been handled later")
	batch := box.WrapBatch("batch", func(context.Context, []*messaging.Message) error { return errNotNow })
	require.NoError(t, batch.HandleBatch(t.Context(), []*messaging.Message{large(ordered("d", "o4")), large(ordered("e", "o5"))}))
	require.Len(t, w.dead(), 5)
	require.Len(t, w.dead()[0].Envelope.Payload, 100<<10, "where they can be, they are stored as they came")

	// Behind another one it cannot wait, and it cannot hold a key that waits already.
	h := box.Wrap("billing", failing)
	require.NoError(t, h.Handle(t.Context(), ordered("first", "o6")))
	require.NoError(t, h.Handle(t.Context(), large(ordered("behind", "o6"))))
	require.NoError(t, h.Handle(t.Context(), ordered("last", "o6")))
	require.Len(t, w.listParked(parked.Filter{Consumer: "billing"}, 10), 2)
	require.Equal(t, 1, w.count("inbox_dead WHERE message_id = 'behind' AND NOT holds"))
}

// refuseDeadLetters makes the database refuse dead letters in every form.
func (w *world) refuseDeadLetters() {
	w.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no dead letters here'; END $$`)
	w.exec(`CREATE TRIGGER refuse BEFORE INSERT ON inbox_dead FOR EACH ROW EXECUTE FUNCTION refuse()`)
}

func TestWhatCannotBeStoredAtAllIsLeftAtTheBroker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.refuseDeadLetters()
	err := w.box.Wrap("billing", gaveUp()).Handle(t.Context(), ordered("a", "o1"))
	require.True(t, messaging.IsLeft(err), "%v", err)
	require.ErrorContains(t, err, "no such customer")
	require.ErrorContains(t, err, "no dead letters here")
	require.Zero(t, w.entries())
}

// An error that a trigger raises is about the message, whatever its code is. An error about the database
// passes, and makes no dead letter.
func TestCodesThatRefuseAMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'no' USING ERRCODE = (SELECT code FROM refusal); END $$`)
	w.exec("CREATE TABLE refusal (code text)")
	w.exec("INSERT INTO refusal VALUES ('')")
	w.exec("CREATE TRIGGER refuse BEFORE INSERT ON inbox_dead FOR EACH ROW EXECUTE FUNCTION refuse()")
	h := w.box.Wrap("billing", gaveUp())
	for code, left := range map[string]bool{
		"22P02": true, "23514": true, "27000": true, "44000": true, "45000": true, "54000": true, "P0001": true, "ZX001": true,
		"08006": false, "0A000": false, "25006": false, "28000": false, "3F000": false, "40P01": false, "42501": false, "53100": false,
		"55000": false, "57014": false, "58030": false, "XX000": false,
	} {
		w.exec("UPDATE refusal SET code = '" + code + "'")
		err := h.Handle(t.Context(), ordered("of "+code, "o"+code))
		require.Error(t, err, code)
		require.Equal(t, left, messaging.IsLeft(err), "%s: %v", code, err)
	}
}

// failsLaterForGood fails once so that the message is parked, and then for good.
func failsLaterForGood() messaging.Handler {
	return messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		if m.Attempt > 1 {
			return messaging.Permanent(errors.New("no such customer"))
		}
		return messaging.RetryAfter(time.Minute, errNotNow)
	})
}

func TestDeadLetterOfAParkedMessageThatIsRefusedIsStoredWithLess(t *testing.T) {
	t.Parallel()
	for name, wrap := range plainAndLeased() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.refusing("inbox_dead", "octet_length(payload) <= 64 * 1024 AND sequence = 0 AND message_id ~ '^[ -~]*$'")
			box := w.hasty(nil)
			h := wrap(box, failsLaterForGood())
			for _, id := range []string{"4711", "Ю"} {
				require.NoError(t, h.Handle(t.Context(), large(ordered(id, "of "+id))))
				require.NoError(t, h.Handle(t.Context(), ordered("behind "+id, "of "+id)))
			}
			places := column[int64](t, w.db.DB, "SELECT seq FROM inbox_parked WHERE message_id IN ('4711', 'Ю') ORDER BY seq")
			w.exec("UPDATE inbox_key SET due_at = now()")
			runParked(t, box)
			await.True(t, func() bool {
				return w.count("inbox_dead WHERE error_message LIKE '%stored without%'") == 2
			}, "two dead letters with less than there was")
			require.Equal(t, places, column[int64](t, w.db.DB, "SELECT seq FROM inbox_dead WHERE error_message LIKE '%stored without%' ORDER BY seq"),
				"where they stood")
			require.Equal(t, 1, w.count("inbox_dead WHERE message_id = '4711' AND octet_length(payload) = 64 * 1024 AND holds"))
			require.Equal(t, 1, w.count("inbox_dead WHERE message_id = '?' AND octet_length(payload) = 0 AND NOT holds"), "nothing waits for it")
			require.Contains(t, w.parked(), "behind 4711")
			require.NoError(t, h.Handle(t.Context(), large(ordered("Ю", "of Ю"))), "a copy")
			require.Equal(t, 1, w.count("inbox_dead WHERE message_id = '?'"))
		})
	}
}

func TestParkedMessageThatCannotBeADeadLetterStaysParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.refuseDeadLetters()
	box := w.hasty(func(cfg *inbox.Config) { cfg.Retry.MaxDelay = time.Hour })
	h := box.Wrap("billing", failsLaterForGood())
	require.NoError(t, h.Handle(t.Context(), ordered("a", "o1")))
	w.exec("UPDATE inbox_key SET due_at = now()")
	runParked(t, box)
	await.True(t, func() bool {
		return w.count("inbox_parked WHERE error_message LIKE '%no dead letters here%'") == 1
	}, "the message is parked with the error of the dead letter")
	require.Equal(t, 1, w.count("inbox_key WHERE owner IS NULL AND due_at > now() + interval '30 minutes'"), "another process may have it, after a pause")
}

// The database may be able later to do what it cannot do now: the message waits, complete.
func TestTroubleOfTheDatabaseCostsNoPayload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'the disk is full' USING ERRCODE = 'disk_full'; END $$`)
	w.exec(`CREATE TRIGGER full_disk BEFORE INSERT ON inbox_dead FOR EACH ROW WHEN (octet_length(NEW.payload) > 70000) EXECUTE FUNCTION full_disk()`)
	h := w.box.Wrap("billing", gaveUp())
	err := h.Handle(t.Context(), large(ordered("a", "o1")))
	require.ErrorContains(t, err, "the disk is full")
	require.False(t, messaging.IsLeft(err))
	require.False(t, messaging.IsPermanent(err))
	w.exec("DROP TRIGGER full_disk ON inbox_dead")
	require.NoError(t, h.Handle(t.Context(), large(ordered("a", "o1"))))
	require.Len(t, w.dead()[0].Envelope.Payload, 100<<10)
}

// The refusal of a statement of the handler itself is the handler's error.
func TestRefusalOfAHandlersStatementIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	err := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		_, err := w.units.DB(ctx).NewRaw("INSERT INTO effects (what) VALUES (NULL)").Exec(ctx)
		return err
	})).Handle(t.Context(), ordered("a", "o1"))
	require.Error(t, err)
	require.Empty(t, w.dead())
}

func TestUnreadableMessagesReachNoHandler(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	reached := errors.New("the handler was called")
	never := messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return messaging.Permanent(reached) })
	message := func() *messaging.Message {
		m := ordered(newID(t), newID(t))
		m.Metadata = event.Metadata{messaging.UnreadableKey: "encrypted"}
		return m
	}
	require.NoError(t, w.box.Wrap("one", never).Handle(t.Context(), message()))
	require.NoError(t, w.box.WrapLeased("leased", never).Handle(t.Context(), message()))
	batch := w.box.WrapBatch("batch", func(context.Context, []*messaging.Message) error { return messaging.Permanent(reached) })
	require.NoError(t, batch.HandleBatch(t.Context(), []*messaging.Message{message(), message()}))
	require.Len(t, w.dead(), 4)
	for _, d := range w.dead() {
		require.Equal(t, "messaging: the message cannot be read: encrypted", d.Error)
	}
}
