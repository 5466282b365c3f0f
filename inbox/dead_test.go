package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/telemetry"
)

func gaveUp() messaging.Handler {
	return messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		return messaging.Permanent(errors.New("no such customer"))
	})
}

func TestPermanentMakesADeadLetterWithTheExactBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered(newID(t), "o1")
	m.Payload = []byte("\x00\xff{\"a\": \"\\u0000\"}\n")
	m.SchemaID, m.SchemaVersion, m.Attempt = "urn:x", 4, 7
	m.OccurredAt = time.Date(2026, 11, 21, 9, 0, 0, 123456000, time.UTC)
	m.Metadata = event.Metadata{event.CorrelationID: "c", "color": "r\x00d"}
	calls := 0
	h := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		calls++
		require.NoError(t, w.effect(ctx, m))
		return fmt.Errorf("handle: %w", messaging.Permanent(errors.New("no such customer")))
	}))
	require.NoError(t, h.Handle(t.Context(), m), "settled")
	require.NoError(t, h.Handle(t.Context(), m), "a copy is a duplicate")
	require.Equal(t, 1, calls)
	require.Empty(t, w.effects())
	require.Equal(t, 1, w.entries())

	require.Len(t, w.dead(), 1)
	d := w.dead()[0]
	require.Equal(t, operator.MessageRef{MessageKey: m.ID, Consumer: "billing", TenantID: "t1", Source: "shop"}, d.Key)
	require.Equal(t, m.Envelope, d.Envelope)
	require.Equal(t, 7, d.Attempts)
	require.Equal(t, "handle: no such customer", d.Error)
	require.WithinDuration(t, time.Now(), d.DiedAt, time.Minute)
	require.Equal(t, []string{"t1|order|o1"}, column[string](t, w.db.DB, "SELECT ordering_key FROM inbox_dead"))
}

type known struct {
	N int `json:"n"`
}

func (known) EventType() string { return "known" }

func TestWhatCannotBeDecodedIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	registry := event.NewRegistry()
	event.Register[known](registry)
	router := messaging.NewRouter(registry)
	messaging.Handle(router, func(context.Context, known) error { return nil })
	h := w.box.Wrap("billing", router)
	direct := w.box.Wrap("decodes by itself", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		_, err := registry.Decode(&m.Envelope)
		return err
	}))
	message := func(id, kind, payload string, version int) *messaging.Message {
		m := unordered(id)
		m.Type, m.Payload, m.SchemaVersion = kind, []byte(payload), version
		return m
	}
	require.NoError(t, h.Handle(t.Context(), message("fine", "known", `{"n":1}`, 1)))
	require.NoError(t, h.Handle(t.Context(), message("bad bytes", "known", "\xff", 1)))
	require.NoError(t, direct.Handle(t.Context(), message("bad bytes", "known", "\xff", 1)))
	var got []string
	for _, d := range w.dead() {
		got = append(got, d.Envelope.ID+": "+string(d.Envelope.Payload))
	}
	require.Equal(t, []string{"bad bytes: \xff", "bad bytes: \xff"}, got)
}

func TestErrorTextFits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.box.Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		return messaging.Permanent(errors.New("a\x00b\xff" + strings.Repeat("é", 2000)))
	}))
	require.NoError(t, h.Handle(t.Context(), unordered("x")))
	got := w.dead()[0].Error
	require.True(t, strings.HasPrefix(got, "a\uFFFDb\uFFFDéé"), got[:20])
	require.LessOrEqual(t, len(got), 2<<10)
	require.Greater(t, len(got), 2000)
	require.True(t, utf8.ValidString(got))
}

// PostgreSQL would refuse these, or an encoder would make two of them one.
func TestInvalidIdentifiersMakeDeadLettersUnderReadableNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.box.Wrap("billing", messaging.HandlerFunc(w.effect))
	long := strings.Repeat("x", 300)
	handle := func(change func(*messaging.Message)) {
		m := ordered("4711", "o1")
		change(m)
		for range 2 {
			require.NoError(t, h.Handle(t.Context(), m))
		}
	}
	handle(func(m *messaging.Message) { m.TenantID = "k\xff" })
	handle(func(m *messaging.Message) { m.TenantID = "k\xfe" })
	handle(func(m *messaging.Message) { m.Source = "s\x00" })
	handle(func(m *messaging.Message) { m.ID = "4711\x00" })
	handle(func(m *messaging.Message) { m.ID = long })
	handle(func(m *messaging.Message) { m.ID = long + "y" })
	handle(func(m *messaging.Message) { m.Type = "\x01"; m.ID = "type" })
	handle(func(m *messaging.Message) { m.Topic = "\xc3"; m.ID = "topic" })
	handle(func(m *messaging.Message) { m.AggregateID = "\n"; m.ID = "aggregate" })
	handle(func(m *messaging.Message) { m.RoutingKey = "\xff\x00"; m.ID = "handled, the key is the aggregate's" })

	require.Equal(t, []string{"handled, the key is the aggregate's"}, w.effects())
	dead := w.dead()
	require.Len(t, dead, 9, "each once, and none is taken for another")
	require.Equal(t, "k\uFFFD", dead[0].Key.TenantID)
	require.Equal(t, "k\uFFFD", dead[1].Key.TenantID)
	require.Contains(t, dead[0].Error, `TenantID is not valid UTF-8: "k\xff"`)
	require.Contains(t, dead[1].Error, `"k\xfe"`)
	require.Equal(t, "s\uFFFD", dead[2].Key.Source)
	require.Equal(t, long[:255], dead[4].Envelope.ID)
	require.Equal(t, []byte(`{"a":1}`), dead[8].Envelope.Payload)
}

// A handler's own connection may break as the one to the database does. Nobody must look for its dead letters behind a line about something else.
func TestDeadLettersAreNoOutageOfTheDatabase(t *testing.T) {
	t.Parallel()
	w, book := newWorld(t), &logbook.Book{}
	box := inbox.New(w.units, &inbox.Config{Telemetry: telemetry.Config{Logger: book.Logger()}})
	for _, consumer := range []string{"billing", "shipping"} {
		h := box.Wrap(consumer, messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
			return messaging.Permanent(fmt.Errorf("decode: %w", io.ErrUnexpectedEOF))
		}))
		require.NoError(t, h.Handle(t.Context(), unordered(newID(t))))
	}
	require.Equal(t, 2, book.Count("message given up"), book.String())
}

// Between the handler that gave up and its dead letter, another process handles the message.
func TestDeadLetterIsNotMadeOfWhatAnotherProcessSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := newBox(w.units, nil).Wrap("billing", messaging.HandlerFunc(w.effect))
	otherDone := make(chan error, 1)
	h := w.box.Wrap("billing", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		go func() { otherDone <- other.Handle(t.Context(), m) }()
		w.awaitWaiters(1) // for the key's lock, which it gets when this unit is rolled back
		return messaging.Permanent(errors.New("no"))
	}))
	m := ordered(newID(t), "o1")
	require.NoError(t, h.Handle(t.Context(), m))
	require.NoError(t, <-otherDone)
	require.Equal(t, []string{m.ID}, w.effects())
	require.Empty(t, w.dead())
}

func TestMessageIsNotSettledIfItsDeadLetterCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.db.ExecContext(t.Context(), "ALTER TABLE inbox_dead RENAME TO hidden")
	require.NoError(t, err)
	err = w.box.Wrap("billing", gaveUp()).Handle(t.Context(), ordered(newID(t), "o1"))
	require.ErrorContains(t, err, "no such customer")
	require.False(t, messaging.IsPermanent(err), "it is worth trying again")
	require.Zero(t, w.entries())
}

// The entry has expired, the dead letter not, and a copy comes.
func TestDeadLetterOfAnExpiredEntryIsUpdated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.box.Wrap("billing", gaveUp())
	for range 2 {
		require.NoError(t, h.Handle(t.Context(), unordered("4711")))
		_, err := w.db.ExecContext(t.Context(), "DELETE FROM inbox")
		require.NoError(t, err)
	}
	require.Len(t, w.dead(), 1)
	require.Equal(t, 2, w.dead()[0].Attempts)
}

func TestDeadPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 5 {
		for _, consumer := range []string{"billing", "shipping"} {
			require.NoError(t, w.box.Wrap(consumer, gaveUp()).Handle(t.Context(), unordered(strconv.Itoa(n))))
		}
	}
	// All at one moment, so that the page is continued by the key.
	_, err := w.db.ExecContext(t.Context(), "UPDATE inbox_dead SET died_at = '2026-11-21'")
	require.NoError(t, err)
	for consumer, want := range map[string]int{"": 10, "billing": 5, "nobody": 0} {
		seen := map[operator.MessageRef]bool{}
		var after *inbox.DeadLetter
		for {
			page, err := w.box.Dead().List(t.Context(), operator.DeadFilter{Consumer: consumer}, after, 3)
			require.NoError(t, err)
			for _, d := range page {
				require.False(t, seen[d.Key])
				seen[d.Key] = true
			}
			if len(page) < 3 {
				break
			}
			after = &page[len(page)-1]
		}
		require.Len(t, seen, want, consumer)
		n, err := w.box.Dead().Count(t.Context(), operator.DeadFilter{Consumer: consumer})
		require.NoError(t, err)
		require.EqualValues(t, want, n)
	}
}

func TestErrorsOfTheLatestDeadLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	long := strings.Repeat("é", 400)
	for n, text := range []string{"first", long} {
		failing := messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return messaging.Permanent(errors.New(text)) })
		require.NoError(t, w.box.Wrap("billing", failing).Handle(t.Context(), unordered(strconv.Itoa(n))))
	}
	list, err := w.box.Dead().Errors(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []string{"billing", long[:600]}, []string{list[0].Consumer, list[0].Error})
	require.Equal(t, "first", list[1].Error)
	require.False(t, list[0].DiedAt.Before(list[1].DiedAt))
	list, err = w.box.Dead().Errors(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, long[:600], list[0].Error, "the newest")
}
