package adapters_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
)

func TestGate(t *testing.T) {
	t.Parallel()
	g := adapters.NewGate()
	g.Pause()
	g.Wake()
	require.True(t, g.IsPaused())
	require.Len(t, g.Look(), 1)
	g.Resume()
	require.False(t, g.IsPaused())
	require.False(t, g.IsClosed())
	require.True(t, g.Shut())
	require.False(t, g.Shut())
	require.True(t, g.IsClosed())
	<-g.Closed()
}

func TestInOrder(t *testing.T) {
	t.Parallel()
	var list []uint64
	for _, n := range []uint64{3, 1, 4, 1, 2} {
		list = adapters.InOrder(list, n, func(n uint64) uint64 { return n })
	}
	require.Equal(t, []uint64{1, 2, 3, 4}, list)
}

func TestReceipt(t *testing.T) {
	t.Parallel()
	m := messaging.NewMessage(event.Envelope{ID: "e1"}, 1, 7)
	ours := func(n int) bool { return n == 7 }
	receipt, err := adapters.Receipt(false, m, "kafka: ack", ours)
	require.NoError(t, err)
	require.Equal(t, 7, receipt)
	_, err = adapters.Receipt(false, m, "kafka: ack", func(string) bool { return true })
	require.ErrorContains(t, err, `kafka: ack: message "e1" was received through another receiver`)
	_, err = adapters.Receipt(false, m, "kafka: ack", func(int) bool { return false })
	require.Error(t, err)
	_, err = adapters.Receipt(true, m, "kafka: ack", ours)
	require.ErrorIs(t, err, messaging.ErrClosed)
}

func TestByTopic(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	publish := func(topic string, indexes []int) map[int]error {
		if topic == "b" {
			return adapters.All(indexes, refused)
		}
		return nil
	}
	msgs := []event.Envelope{{Topic: "a"}, {Topic: "b"}, {Topic: "a"}, {Topic: "b"}}
	require.Equal(t, map[int]error{1: refused, 3: refused}, adapters.ByTopic(msgs, publish))
	require.Equal(t, map[int]error{0: refused}, adapters.ByTopic(msgs[1:2], publish))
}
