//go:build nightly

package rabbitmq

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
)

// The broker is killed and started again while messages wait. Nothing that was confirmed is lost, and each key has the same queue as before: else a
// message that is published after the restart would overtake the ones that wait in the old queue. Publisher and receivers connect again by themselves.
func TestBrokerIsKilled(t *testing.T) {
	t.Parallel()
	own, err := devenv.RabbitMQ(t.Context(), &devenv.Options{Own: true, Volatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Stop()) })
	s := billing("killed")
	cfg := config(own.URL)
	cfg.Queues = 12 // so that the names have another order than the numbers
	b := connect(t, cfg)
	r := subscribe(t, b, s)
	r.Pause()
	const keys, rounds = 60, 4
	n := 0
	for round := range rounds {
		switch round {
		case 0:
		case 1: // in good order: 3.10 loses a queue that was made in the seconds before it is killed
			require.NoError(t, own.End(syscall.SIGTERM))
			require.NoError(t, own.Restart(patient(t)))
		default:
			require.NoError(t, own.Restart(patient(t)))
		}
		for range 5 {
			var msgs []event.Envelope
			for k := range keys {
				msgs = append(msgs, envelope("killed", fmt.Sprintf("key-%d", k), n))
			}
			n++
			insist(t, b, msgs)
		}
	}
	r.Resume()
	requireRest(t, r, keys*n, nil)
}

// RabbitMQ 3.10 is killed in the seconds after it has made a queue, and forgets how it stands with the queue. The adapter and the doctor name it, and the
// command of the doctor mends it.
func TestQueueWithoutState(t *testing.T) {
	t.Parallel()
	own, err := devenv.RabbitMQ(t.Context(), &devenv.Options{Own: true, Volatile: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Stop()) })
	var log logbook.Book
	cfg := config(own.URL)
	cfg.ManagementURL, cfg.Queues, cfg.ConnectTimeout, cfg.CloseTimeout = own.ManagementURL, 1, 10*time.Second, time.Second
	cfg.Telemetry.Logger = log.Logger()
	b := connect(t, cfg)
	s := billing("forgotten")
	queue := queueName(b.topology.names.of(s.Topic, s.Name), 0)
	examine := func() string {
		found, err := b.Examine(patient(t), diagnosis.Examination{Topics: []string{s.Topic}})
		require.NoError(t, err)
		return texts(found)
	}
	await.True(t, func() bool { // it does not happen each time
		_ = own.Control(patient(t), "delete_queue", queue) // the one of the round before, if there was one
		require.NoError(t, b.Declare(patient(t), nil, []messaging.Subscription{s}))
		require.NoError(t, own.Restart(patient(t)))
		return strings.Contains(examine(), "it has no state")
	}, "a queue without state")
	other, err := Connect(patient(t), cfg)
	require.NoError(t, err)
	_, err = other.Subscribe(patient(t), s)
	require.ErrorIs(t, err, messaging.ErrBrokerDown)
	require.ErrorContains(t, err, "queue "+queue+" gives no answer")
	await.True(t, func() bool { return strings.Contains(log.String(), "does not let its consumer in") }, "the line of the log")
	_ = other.Close() // the broker still waits for the queue

	require.NoError(t, own.Control(patient(t), "delete_queue", queue))
	r := subscribe(t, b, s)
	insist(t, b, []event.Envelope{envelope(s.Topic, "a", 1)})
	require.EqualValues(t, 1, receive(t, r).Sequence)
	require.NotContains(t, examine(), "problem")
}
