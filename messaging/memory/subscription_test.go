package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
)

// drain receives all messages that are there. It needs a synctest bubble to find out that nothing moves any more.
func drain(t *testing.T, r messaging.Receiver) []*messaging.Message {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var msgs []*messaging.Message
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := r.Receive(ctx)
			if err != nil {
				return
			}
			msgs = append(msgs, m)
		}
	}()
	synctest.Wait()
	cancel()
	<-done
	return msgs
}

func ids(msgs []*messaging.Message) []string {
	out := make([]string, len(msgs))
	for i, m := range msgs {
		out[i] = m.ID
	}
	return out
}

func keys(msgs []*messaging.Message) map[string]bool {
	out := map[string]bool{}
	for _, m := range msgs {
		out[m.RoutingKey] = true
	}
	return out
}

func publishKeys(t *testing.T, b *memory.Broker, n int) {
	t.Helper()
	for i := range n {
		require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope(fmt.Sprintf("key%d-", i), 1), envelope(fmt.Sprintf("key%d-", i), 2)}))
	}
}

// A consumer that joins takes partitions over at once, with all that is not settled.
func TestFailoverMovesPartitionsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, nil)
		publishKeys(t, b, 20)
		first := subscribe(t, b, messaging.Subscription{Name: "s", Consumer: "a"})
		held := drain(t, first)
		require.Len(t, held, 40)

		second := subscribe(t, b, messaging.Subscription{Name: "s", Consumer: "b"})
		moved := drain(t, second)
		require.NotEmpty(t, moved)
		require.Less(t, len(moved), 40)
		for _, m := range moved {
			require.Equal(t, 2, m.Attempt)
		}
		require.NoError(t, first.Redeliver(t.Context(), held[len(held)-1]))
		require.NoError(t, first.Redeliver(t.Context(), held[len(held)-2]))
		require.Empty(t, drain(t, second), "it is not the first one's any more, or it comes again there")
		drain(t, first)
		// The first consumer settles late. Its message is settled, and the copy of it as well.
		for _, m := range held {
			require.NoError(t, first.Ack(t.Context(), m))
		}
		require.NoError(t, second.Close())
		require.Empty(t, drain(t, first))
	})
}

// A message that is settled late is not delivered again if it still waits.
func TestFailoverLateAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, nil)
		publishKeys(t, b, 20)
		first := subscribe(t, b, messaging.Subscription{Name: "s", Consumer: "a"})
		held := drain(t, first)
		second := subscribe(t, b, messaging.Subscription{Name: "s", Consumer: "b"})
		for _, m := range held {
			require.NoError(t, first.Ack(t.Context(), m))
		}
		require.Empty(t, drain(t, second))
	})
}

func TestFailoverNamesDecideNotTheOrderOfJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		split := func(names ...string) map[string]bool {
			b := open(t, nil)
			receivers := map[string]messaging.Receiver{}
			for _, name := range names {
				receivers[name] = subscribe(t, b, messaging.Subscription{Name: "s", Consumer: name})
			}
			publishKeys(t, b, 20)
			return keys(drain(t, receivers["a"]))
		}
		require.Equal(t, split("a", "b"), split("b", "a"))
	})
}

// A group of keys stays with its consumer until its messages are settled.
func TestKeySharedMovesSettledKeysOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, nil)
		publishKeys(t, b, 40)
		first := subscribe(t, b, messaging.Subscription{Name: "s", Type: messaging.KeyShared, Consumer: "a"})
		held := drain(t, first)
		require.Len(t, held, 80)
		second := subscribe(t, b, messaging.Subscription{Name: "s", Type: messaging.KeyShared, Consumer: "b"})
		require.Empty(t, drain(t, second))
		publishKeys(t, b, 200)
		require.NotEmpty(t, drain(t, second), "groups without anything unsettled moved")
		again := drain(t, first)
		for _, m := range append(held, again...) {
			require.NoError(t, first.Ack(t.Context(), m))
		}
		publishKeys(t, b, 40)
		require.NotEmpty(t, drain(t, second))
		for key := range keys(drain(t, first)) {
			require.NotContains(t, keys(drain(t, second)), key)
		}
	})
}

func TestSharedGivesEachMessageToOne(t *testing.T) {
	b := open(t, nil)
	first := subscribe(t, b, messaging.Subscription{Name: "s", Type: messaging.Shared})
	second := subscribe(t, b, messaging.Subscription{Name: "s", Type: messaging.Shared})
	require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("a", 1), envelope("a", 2)}))
	require.Equal(t, "a1", receive(t, first).ID)
	require.Equal(t, "a2", receive(t, second).ID)
	require.NoError(t, first.Close())
	require.Equal(t, "a1", receive(t, second).ID)
}

func TestTypeOfASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, nil)
		require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("a", 1), envelope("a", 2)}))
		r := subscribe(t, b, messaging.Subscription{Name: "s"})
		require.NoError(t, r.Ack(t.Context(), receive(t, r)))
		_, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "topic", Name: "s", Type: messaging.Shared})
		require.ErrorContains(t, err, "as failover, so it cannot be used as shared")
		require.NoError(t, r.Close())
		require.Equal(t, []string{"a2"}, ids(drain(t, subscribe(t, b, messaging.Subscription{Name: "s", Type: messaging.Shared}))))
	})
}

func TestForeignMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, nil)
		require.NoError(t, b.Publish(t.Context(), []event.Envelope{envelope("a", 1)}))
		r, other := subscribe(t, b, messaging.Subscription{Name: "s"}), subscribe(t, b, messaging.Subscription{Name: "other"})
		require.ErrorContains(t, r.Ack(t.Context(), receive(t, other)), "through another receiver")
		require.ErrorContains(t, r.Ack(t.Context(), messaging.NewMessage(event.Envelope{}, 1, nil)), "through another receiver")
		m := receive(t, r)
		require.NoError(t, r.Ack(t.Context(), m))
		require.NoError(t, r.Ack(t.Context(), m), "a second time")
		require.NoError(t, r.Redeliver(t.Context(), m))
		require.Empty(t, drain(t, r), "a settled message is not given back")
	})
}

// Two services that have a consumer of one name would share its messages.
func TestSubscriptionOfAnotherService(t *testing.T) {
	b := memory.New(nil)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	subscribe := func(source string) error {
		_, err := b.Subscribe(t.Context(), messaging.Subscription{Topic: "order", Name: "billing", Source: source})
		return err
	}
	require.NoError(t, subscribe(""))
	require.NoError(t, subscribe("shop"), "one without an owner gets one")
	require.NoError(t, subscribe("shop"))
	err := subscribe("bank")
	found, ok := errors.AsType[*messaging.SourceError](err)
	require.True(t, ok, err)
	require.Equal(t, []string{"shop", "bank"}, []string{found.Owner, found.Source})
	require.True(t, messaging.IsPermanent(err), "trying again does not help")
	require.NoError(t, subscribe(""), "not checked")
}
