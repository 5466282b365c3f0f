package leases

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/messaging"
)

// A failure of the broker goes on until a row is taken, and one of a topic until a row of the topic is. A refusal of a message is neither.
func TestFailureGoesOnUntilSomethingIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		row := func(topic string) *outboxdb.Row { return &outboxdb.Row{Envelope: event.Envelope{Topic: topic}} }
		f := &Failure{}
		began := time.Now()
		minutesOn := func(errs map[int]error, topics ...string) failing {
			var rows []*outboxdb.Row
			for _, topic := range topics {
				rows = append(rows, row(topic))
			}
			f.Note(rows, errs)
			is := f.now()
			time.Sleep(time.Minute)
			return is
		}
		away := map[int]error{0: messaging.ErrBrokerDown}
		require.Equal(t, failing{messaging.ErrBrokerDown.Error(), began, began}, minutesOn(away, "order"))
		require.Equal(t, failing{messaging.ErrBrokerDown.Error(), began, began.Add(time.Minute)}, minutesOn(away, "order"), "it began with the first one")
		over := minutesOn(nil, "order")
		require.Equal(t, failing{messaging.ErrBrokerDown.Error(), time.Time{}, began.Add(time.Minute)}, over)
		require.Equal(t, over, minutesOn(map[int]error{0: errors.New("too large")}, "order"))

		topic := map[int]error{0: &messaging.TopicError{Topic: "order", Err: errors.New("no")}}
		since := minutesOn(topic, "order").began
		require.Equal(t, began.Add(4*time.Minute), since)
		require.Equal(t, since, minutesOn(topic, "order", "refund").began, "another topic works")
		require.Zero(t, minutesOn(nil, "order").began)
	})
}
