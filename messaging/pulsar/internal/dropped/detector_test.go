package dropped_test

import (
	"testing"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging/pulsar/internal/dropped"
)

type consumer struct {
	pulsarclient.Consumer

	name string
}

type message struct {
	pulsarclient.Message

	id pulsarclient.MessageID
}

func (m message) ID() pulsarclient.MessageID { return m.id }

func TestDetector(t *testing.T) {
	var d dropped.Detector
	one, two := &consumer{name: "one"}, &consumer{name: "two"}
	at := func(partition int32, entry int64) pulsarclient.MessageID {
		return pulsarclient.NewMessageID(1, entry, -1, partition)
	}
	arrive := func(of *consumer, partition int32, entries ...int64) {
		for _, entry := range entries {
			d.Arrive(pulsarclient.ConsumerMessage{Consumer: of, Message: message{id: at(partition, entry)}})
		}
	}
	take := func(partition int32, entries ...int64) {
		t.Helper()
		for _, entry := range entries {
			require.False(t, d.Take(at(partition, entry)), entry)
		}
	}
	require.False(t, d.Take(at(0, 1)), "nothing has arrived")

	arrive(one, 0, 1, 2, 3)
	arrive(one, 1, 1, 2)
	take(1, 1)
	take(0, 1, 2, 3)
	take(1, 2)
	require.Zero(t, d.Waiting())

	// The broker delivers the dropped messages once more, and some that were taken already.
	arrive(one, 0, 4, 5, 6, 7)
	take(0, 4)
	arrive(one, 0, 2, 3, 4, 5, 6, 7, 8)
	take(0, 2, 3, 4, 5, 6, 7, 8)
	require.Zero(t, d.Waiting())

	// The dropped messages do not come once more, and later ones do.
	arrive(one, 0, 9, 10, 11)
	take(0, 9)
	arrive(one, 0, 12)
	arrive(one, 1, 3)
	take(1, 3)
	require.Equal(t, 3, d.Waiting())
	require.True(t, d.Take(at(0, 12)))
	require.Equal(t, 2, d.Waiting())

	// A partition that another process had meanwhile, and another consumer.
	d.Forget(0)
	require.Zero(t, d.Waiting())
	arrive(one, 0, 13)
	take(0, 13)
	arrive(one, 0, 14)
	arrive(two, 0, 15)
	take(0, 15)
	arrive(two, 0, 16)
	d.Reset()
	require.Zero(t, d.Waiting())
}
