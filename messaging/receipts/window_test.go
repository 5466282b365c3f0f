package receipts_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/receipts"
)

// messages makes messages whose ids are a key and a number: a1, a2, b1. A message with the key - has no key.
func messages(ids ...string) []event.Envelope {
	msgs := make([]event.Envelope, len(ids))
	for i, id := range ids {
		msgs[i] = event.Envelope{ID: id, Topic: "order", RoutingKey: id[:1]}
		if id[0] == '-' {
			msgs[i].RoutingKey = ""
		}
	}
	return msgs
}

// client answers as a test wants.
type client struct {
	msgs   []event.Envelope
	answer func(id string, receipt func(error)) error
	sent   []string
}

func (c *client) send(_ context.Context, i int, receipt func(error)) error {
	c.sent = append(c.sent, c.msgs[i].ID)
	return c.answer(c.msgs[i].ID, receipt)
}

// publish returns the errors by id.
func publish(ctx context.Context, w receipts.Window, c *client, ids ...string) (map[string]error, bool) {
	c.msgs = messages(ids...)
	byIndex, sound := w.Publish(ctx, c.msgs, nil, c.send)
	failed := map[string]error{}
	for i, err := range byIndex {
		failed[ids[i]] = err
	}
	return failed, sound
}

func always(int) bool { return true }

var (
	errRefused = messaging.Permanent(errors.New("refused"))
	errFault   = errors.New("the connection is gone")
)

func isFault(err error) bool { return errors.Is(err, errFault) }

func TestAllAreConfirmed(t *testing.T) {
	c := &client{answer: func(_ string, receipt func(error)) error {
		go receipt(nil)
		return nil
	}}
	failed, sound := publish(t.Context(), receipts.Window{}, c, "a1", "b1", "a2", "-1")
	require.Empty(t, failed)
	require.True(t, sound)
	require.Equal(t, []string{"a1", "b1", "a2", "-1"}, c.sent)
}

func TestOnlyTheseIndexes(t *testing.T) {
	c := &client{msgs: messages("a1", "a2", "b1"), answer: func(id string, receipt func(error)) error {
		receipt(errors.New(id))
		return nil
	}}
	w := receipts.Window{}
	failed, _ := w.Publish(t.Context(), c.msgs, []int{1, 2}, c.send)
	require.Len(t, failed, 2)
	require.EqualError(t, failed[1], "a2")
	require.EqualError(t, failed[2], "b1")
}

func TestNothingToPublish(t *testing.T) {
	failed, sound := publish(t.Context(), receipts.Window{}, &client{})
	require.Empty(t, failed)
	require.True(t, sound)
}

// The next message of a held key goes out when the receipt has come; other keys go on meanwhile.
func TestHeldKeyWaitsForItsReceipt(t *testing.T) {
	var open []func()
	c := &client{}
	c.answer = func(id string, receipt func(error)) error {
		open = append(open, func() {
			c.sent = append(c.sent, "receipt of "+id)
			receipt(nil)
		})
		return nil
	}
	w := receipts.Window{Holds: always, Flush: func(context.Context) error {
		for _, answer := range open {
			answer()
		}
		open = nil
		return nil
	}}
	failed, sound := publish(t.Context(), w, c, "a1", "a2", "b1", "-1", "-2", "a3")
	require.Empty(t, failed)
	require.True(t, sound)
	require.Equal(t, []string{
		"a1", "b1", "-1", "-2", "receipt of a1", "receipt of b1", "receipt of -1", "receipt of -2",
		"a2", "receipt of a2", "a3", "receipt of a3",
	}, c.sent)
}

func TestNoMoreInFlightThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		flying, most := 0, 0
		c := &client{answer: func(_ string, receipt func(error)) error {
			mu.Lock()
			defer mu.Unlock()
			flying++
			most = max(most, flying)
			time.AfterFunc(time.Second, func() {
				mu.Lock()
				defer mu.Unlock()
				flying--
				receipt(nil)
			})
			return nil
		}}
		ids := make([]string, 10)
		for i := range ids {
			ids[i] = string(rune('a'+i)) + "1"
		}
		failed, _ := publish(t.Context(), receipts.Window{InFlight: 3}, c, ids...)
		require.Empty(t, failed)
		require.Equal(t, 3, most)
	})
}

func TestRefusedMessageHoldsBackItsKey(t *testing.T) {
	c := &client{answer: func(id string, receipt func(error)) error {
		if id == "a2" || id == "-1" {
			receipt(errRefused)
		} else {
			receipt(nil)
		}
		return nil
	}}
	failed, sound := publish(t.Context(), receipts.Window{}, c, "a1", "a2", "-1", "a3", "b1", "-2", "a4")
	require.True(t, sound, "a refusal is no fault of the connection")
	require.Equal(t, []string{"a1", "a2", "-1", "b1", "-2"}, c.sent)
	require.True(t, messaging.IsPermanent(failed["a2"]))
	require.ErrorIs(t, failed["a3"], messaging.ErrBehind)
	require.ErrorIs(t, failed["a4"], messaging.ErrBehind)
	require.Len(t, failed, 4, "without a key nothing is behind anything")
}

// Topics have nothing to do with each other, whatever their keys are.
func TestKeyOfAnotherTopicGoesOn(t *testing.T) {
	c := &client{msgs: messages("a1", "a2"), answer: func(id string, receipt func(error)) error {
		if id == "a1" {
			receipt(errRefused)
		} else {
			receipt(nil)
		}
		return nil
	}}
	c.msgs[1].Topic = "invoice"
	w := receipts.Window{}
	failed, _ := w.Publish(t.Context(), c.msgs, nil, c.send)
	require.Len(t, failed, 1)
}

// A later message that was confirmed although an earlier one was not is published again behind it.
func TestConfirmedBehindARefusedOneIsUnknown(t *testing.T) {
	var refuse func(error)
	c := &client{answer: func(id string, receipt func(error)) error {
		if id == "a1" {
			refuse = receipt
			return nil
		}
		receipt(nil)
		refuse(errRefused)
		return nil
	}}
	failed, _ := publish(t.Context(), receipts.Window{}, c, "a1", "a2")
	require.True(t, messaging.IsPermanent(failed["a1"]))
	require.ErrorIs(t, failed["a2"], messaging.ErrUnknown)
	require.ErrorContains(t, failed["a2"], "stored before an earlier message")
}

func TestFaultEndsTheCall(t *testing.T) {
	c := &client{answer: func(id string, receipt func(error)) error {
		if id == "a2" {
			receipt(fmt.Errorf("%w: %w", messaging.ErrUnknown, errFault))
		} else {
			receipt(nil)
		}
		return nil
	}}
	failed, sound := publish(t.Context(), receipts.Window{Breaks: isFault}, c, "a1", "a2", "a3", "b1")
	require.False(t, sound)
	require.Equal(t, []string{"a1", "a2"}, c.sent)
	require.ErrorIs(t, failed["a2"], errFault)
	require.ErrorIs(t, failed["a3"], messaging.ErrBehind)
	require.ErrorIs(t, failed["b1"], messaging.ErrUnknown)
	require.ErrorContains(t, failed["b1"], "was not sent")
	require.NotContains(t, failed, "a1")
}

func TestErrorOfSendEndsTheCall(t *testing.T) {
	c := &client{answer: func(string, func(error)) error { return errFault }}
	failed, sound := publish(t.Context(), receipts.Window{}, c, "a1", "a2", "b1")
	require.False(t, sound)
	require.Equal(t, []string{"a1"}, c.sent)
	require.ErrorIs(t, failed["a1"], messaging.ErrUnknown)
	require.ErrorIs(t, failed["a2"], messaging.ErrBehind)
	require.ErrorIs(t, failed["b1"], messaging.ErrUnknown)
}

// A fault ends the wait, too: a flush may wait for receipts that cannot come.
func TestFaultEndsTheFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{answer: func(id string, receipt func(error)) error {
			if id == "a1" {
				time.AfterFunc(time.Second, func() { receipt(errFault) })
			}
			return nil
		}}
		began := time.Now()
		failed, sound := publish(t.Context(), receipts.Window{Breaks: isFault, Flush: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}, c, "a1", "b1")
		require.Equal(t, time.Second, time.Since(began))
		require.False(t, sound)
		require.ErrorIs(t, failed["a1"], errFault)
		require.ErrorIs(t, failed["b1"], messaging.ErrUnknown)
	})
}

func TestFlushIsNotRepeatedForEachReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{answer: func(id string, receipt func(error)) error {
			time.AfterFunc(time.Duration(id[0])*time.Millisecond, func() { receipt(nil) })
			return nil
		}}
		flushes := 0
		failed, _ := publish(t.Context(), receipts.Window{Flush: func(context.Context) error {
			flushes++
			return nil
		}}, c, "a1", "b1", "c1")
		require.Empty(t, failed)
		require.Equal(t, 1, flushes)
	})
}

// Nobody waits longer than the deadline, and what comes after it changes nothing.
func TestMissingReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var late func(error)
		c := &client{answer: func(id string, receipt func(error)) error {
			if id == "a2" {
				late = receipt
			} else {
				go receipt(nil)
			}
			return nil
		}}
		began := time.Now()
		failed, sound := publish(ctx, receipts.Window{}, c, "a1", "a2", "a3", "b1")
		require.Equal(t, 5*time.Second, time.Since(began))
		require.False(t, sound)
		late(nil)
		late(errors.New("and again"))
		require.Len(t, failed, 2)
		require.ErrorIs(t, failed["a2"], messaging.ErrUnknown)
		require.ErrorIs(t, failed["a3"], messaging.ErrUnknown, "it is stored, but behind a message that is not")
	})
}

// The first answer counts.
func TestSecondReceiptIsIgnored(t *testing.T) {
	c := &client{answer: func(id string, receipt func(error)) error {
		receipt(nil)
		receipt(errRefused)
		receipt(errFault)
		return nil
	}}
	failed, sound := publish(t.Context(), receipts.Window{Breaks: isFault}, c, "a1", "a2")
	require.Empty(t, failed)
	require.True(t, sound)
}

func TestContextThatIsDone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &client{}
	failed, sound := publish(ctx, receipts.Window{}, c, "a1", "a2")
	require.Empty(t, c.sent)
	require.True(t, sound, "nothing was handed over")
	require.ErrorIs(t, failed["a1"], messaging.ErrUnknown)
	require.ErrorIs(t, failed["a2"], messaging.ErrBehind)
}

// Whatever the client does: the messages without an error were confirmed and are the first ones of their key; with Holds, no message is handed over
// before the one before it has its receipt.
func TestConfirmedMessagesAreAPrefix(t *testing.T) {
	nightly.Check(t, 200, 20_000, func(t *rapid.T) {
		ids := make([]string, rapid.IntRange(1, 15).Draw(t, "messages"))
		for i := range ids {
			ids[i] = rapid.SampledFrom([]string{"a", "b", "-"}).Draw(t, "key") + strconv.Itoa(i)
		}
		behaviour := rapid.SampledFrom([]string{
			"confirms", "confirms", "confirms at flush", "elsewhere", "forgets", "refuses", "refuses at flush", "breaks", "twice", "fails",
		})
		var (
			mu        sync.Mutex
			confirmed = map[string]bool{}
			atFlush   []func()
			elsewhere sync.WaitGroup
		)
		confirm := func(id string, receipt func(error)) func() {
			return func() {
				mu.Lock()
				confirmed[id] = true
				mu.Unlock()
				receipt(nil)
			}
		}
		holds := rapid.Bool().Draw(t, "holds")
		early := ""
		c := &client{}
		c.answer = func(id string, receipt func(error)) error {
			mu.Lock()
			for _, before := range c.sent[:len(c.sent)-1] {
				if holds && id[0] != '-' && before[0] == id[0] && !confirmed[before] {
					early = id + " was sent before the receipt of " + before
				}
			}
			mu.Unlock()
			switch behaviour.Draw(t, id) {
			case "confirms":
				confirm(id, receipt)()
			case "confirms at flush":
				atFlush = append(atFlush, confirm(id, receipt))
			case "elsewhere":
				elsewhere.Go(confirm(id, receipt))
			case "refuses":
				receipt(errRefused)
			case "refuses at flush":
				atFlush = append(atFlush, func() { receipt(errRefused) })
			case "breaks":
				receipt(errFault)
			case "twice":
				confirm(id, receipt)()
				receipt(errRefused)
			case "fails":
				return errFault
			}
			return nil
		}
		w := receipts.Window{InFlight: rapid.IntRange(0, 3).Draw(t, "in flight"), Breaks: isFault, Flush: func(context.Context) error {
			for _, fn := range atFlush {
				fn()
			}
			atFlush = nil
			return nil
		}}
		if holds {
			w.Holds = always
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		failed, sound := publish(ctx, w, c, ids...)
		elsewhere.Wait()
		require.Empty(t, early)
		stopped := map[byte]bool{}
		for _, id := range ids {
			if failed[id] == nil {
				require.True(t, confirmed[id], "%s was never confirmed", id)
				require.False(t, id[0] != '-' && stopped[id[0]], "%s was reported as sent behind a message that was not", id)
				continue
			}
			stopped[id[0]] = true
			known := errors.Is(failed[id], errFault) || messaging.IsPermanent(failed[id]) || errors.Is(failed[id], messaging.ErrUnknown) ||
				errors.Is(failed[id], messaging.ErrBehind)
			require.True(t, known, "%s: %v", id, failed[id])
		}
		if sound {
			require.Empty(t, atFlush, "the connection is used again with messages under way")
		}
	})
}
