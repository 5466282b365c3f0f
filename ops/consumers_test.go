package ops_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/ops"
)

// Processes that are silent and have not ended are reported as perhaps alive. If the broker has an answer, it counts.
func TestWhatIsKnownOfProcessesThatAreMissing(t *testing.T) {
	s := newService(t)
	view := ops.New(s.DB, s.App.Outbox, s.App.Inbox, s.App.Idempotency)
	for name, test := range map[string]struct {
		state    state.Consumer
		waiting  state.Waiting
		vanished bool
		says     string
	}{
		"connected to the broker": {
			waiting: state.Waiting{Known: true, Messages: 1, Connections: 2}, vanished: true,
			says: "1 message waits at the broker; its processes did not shut down cleanly, and the broker still has 2 of them connected: " +
				"they run but cannot reach the database, or they are frozen",
		},
		"not connected": {
			waiting: state.Waiting{Known: true, Messages: 2}, vanished: true,
			says: "2 messages wait at the broker; its processes did not shut down cleanly: they were killed, are frozen, or cannot reach the database",
		},
		"the broker has estimated it": {
			waiting: state.Waiting{
				Known: true, At: time.Unix(3600, 0), Messages: 14230, Precision: count.Estimated, Oldest: time.Unix(3470, 0),
			},
			vanished: true,
			says: "about 14230 messages wait at the broker, late by about 2m10s; its processes did not shut down cleanly: they were killed, are frozen, " +
				"or cannot reach the database",
		},
		"nobody knows what waits": {
			waiting: state.Waiting{Connections: 2}, vanished: true,
			says: "it is not known how many messages of topic order wait at the broker; its processes did not shut down cleanly: they were killed, " +
				"are frozen, or cannot reach the database",
		},
		"ended": {
			state: state.Consumer{Stopped: true}, waiting: state.Waiting{Known: true, Messages: 2, Connections: 1},
			says: "2 messages wait at the broker; no process runs the consumer; its last process shut down cleanly",
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := test.state
			is.Consumer, is.SeenAt = "billing", time.Now()
			is.Topics = []state.Topic{{Topic: "order", Waiting: test.waiting}}
			found, err := view.WithConsumers(func(context.Context) ([]state.Consumer, error) {
				return []state.Consumer{is}, nil
			}).Stuck(t.Context(), ops.Filter{}, 0)
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Equal(t, test.says, found[0].Error)
			require.Equal(t, []any{ops.ConsumerMissing, test.vanished}, []any{found[0].Kind, found[0].Vanished})
		})
	}
}
