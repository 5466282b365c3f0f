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

// Two topics in trouble have a beginning each. While one of them goes on, the end of the other changes nothing, and so does the end of a failure of the
// broker in between. A topic of which nothing is sent any more is in no trouble.
func TestTopicsFailSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, began := &Failure{}, time.Now()
		note := func(topic string, err error) failing {
			errs := map[int]error{}
			if err != nil {
				errs[0] = err
			}
			f.Note([]*outboxdb.Row{{Envelope: event.Envelope{Topic: topic}}}, errs)
			is := f.now()
			time.Sleep(time.Minute)
			return is
		}
		refused := func(topic string) error { return &messaging.TopicError{Topic: topic, Err: errors.New("no")} }
		for range 3 {
			for _, topic := range []string{"order", "refund"} {
				is := note(topic, refused(topic))
				require.Equal(t, []any{"order", began}, []any{is.topic, is.began}, "it began first")
			}
		}
		require.Empty(t, note("order", messaging.ErrBrokerDown).topic, "the broker counts first")
		is := note("parcel", nil)
		require.Equal(t, []any{"order", began}, []any{is.topic, is.began}, "the broker is back, and the topic is not")
		is = note("order", nil)
		require.Equal(t, []any{"refund", began.Add(time.Minute)}, []any{is.topic, is.began})
		time.Sleep(untried)
		require.Zero(t, f.now().began, "its events were discarded")
	})
}

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
		require.Equal(t, failing{messaging.ErrBrokerDown.Error(), "", began, began}, minutesOn(away, "order"))
		require.Equal(t, failing{messaging.ErrBrokerDown.Error(), "", began, began.Add(time.Minute)}, minutesOn(away, "order"), "it began with the first one")
		over := minutesOn(nil, "order")
		require.Equal(t, failing{messaging.ErrBrokerDown.Error(), "", time.Time{}, began.Add(time.Minute)}, over)
		require.Equal(t, over, minutesOn(map[int]error{0: errors.New("too large")}, "order"))

		topic := map[int]error{0: &messaging.TopicError{Topic: "order", Err: errors.New("no")}}
		since := minutesOn(topic, "order").began
		require.Equal(t, began.Add(4*time.Minute), since)
		require.Equal(t, since, minutesOn(topic, "order", "refund").began, "another topic works")
		require.Zero(t, minutesOn(nil, "order").began)

		require.Zero(t, minutesOn(away, "order", "order").began, "the broker takes a part of the call")
		require.Zero(t, minutesOn(topic, "order", "order").began)
		since = minutesOn(topic, "order").began
		require.Equal(t, failing{messaging.ErrBrokerDown.Error(), "", since.Add(time.Minute), since.Add(time.Minute)}, minutesOn(away, "refund"),
			"first a topic, then the broker")
		require.Equal(t, since.Add(time.Minute), minutesOn(topic, "order").began, "a broker that is away may name a topic")
		require.Empty(t, f.now().topic)

		is := f.now()
		require.True(t, is.lasts(2*time.Minute))
		require.False(t, is.lasts(time.Hour), "too young")
		f.Note([]*outboxdb.Row{row("order")}, nil)
		is = f.now()
		require.False(t, is.lasts(time.Minute), "it is over")
	})
}
