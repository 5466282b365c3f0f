//go:build nightly

package rabbitmq

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/devenv"
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
