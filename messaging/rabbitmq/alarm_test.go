package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/diagnosis"
)

// The broker runs out of memory. It says so when something is published, and takes no more of it until the alarm is over; consumers go on. It runs
// alone, because the alarm stops all publishers of the server.
func TestMemoryAlarm(t *testing.T) {
	s := startedHere(t)
	cfg := config(s.URL)
	cfg.ManagementURL = s.ManagementURL
	b := connect(t, cfg)
	r := subscribe(t, b, billing("memory"))
	n := 0
	next := func() []event.Envelope {
		n++
		return []event.Envelope{envelope("memory", "a", n)}
	}
	require.NoError(t, b.Publish(patient(t), next()))

	watermark := func(fraction string) {
		require.NoError(t, s.Control(patient(t), "set_vm_memory_high_watermark", fraction))
	}
	watermark("0.0001")
	lifted := false
	t.Cleanup(func() {
		if !lifted {
			watermark("0.4")
		}
	})
	await.True(t, func() bool {
		ctx, cancel := context.WithTimeout(patient(t), 200*time.Millisecond)
		defer cancel()
		err := b.Publish(ctx, next())
		if err == nil { // the alarm has not reached the connection yet
			return false
		}
		err = failedOf(t, err)[0]
		require.True(t, errors.Is(err, messaging.ErrBrokerDown) || errors.Is(err, messaging.ErrUnknown), "%v", err)
		return errors.Is(err, messaging.ErrBrokerDown) && strings.Contains(err.Error(), "low on memory")
	}, "publishing is held")
	first := receive(t, r)
	require.EqualValues(t, 1, first.Sequence)
	require.NoError(t, r.Ack(patient(t), first))
	alarm := func(is bool) func() error {
		return func() error {
			found, err := b.Examine(patient(t), diagnosis.Examination{Topics: []string{"memory"}})
			if err == nil && strings.Contains(texts(found), "runs out of memory") != is {
				err = fmt.Errorf("it finds %q", texts(found))
			}
			return err
		}
	}
	await.Nil(t, alarm(true), "the doctor sees the alarm")
	closed, err := Connect(patient(t), config(s.URL))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(patient(t), time.Second)
	defer cancel()
	require.Error(t, closed.Publish(ctx, next()))
	require.NoError(t, closed.Close(), "it does not wait for the broker, which reads nothing")

	held := make(chan error, 1)
	go func() { held <- b.Publish(patient(t), next()) }()
	watermark("0.4")
	lifted = true
	require.NoError(t, <-held)
	// The broker may have taken messages whose outcome was unknown. Each of them was sent on a channel of its own, and channels have no order.
	seen := map[int64]bool{first.Sequence: true}
	for !seen[int64(n)] {
		m := receive(t, r)
		require.False(t, seen[m.Sequence], "message %d comes once", m.Sequence)
		seen[m.Sequence] = true
		require.NoError(t, r.Ack(patient(t), m))
	}
	await.Nil(t, alarm(false), "the plugin sees the end of the alarm")
}
