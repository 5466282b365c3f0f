package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox/state"
)

// An error of the connection is over when all processes are connected again. An error of the handler is not.
func TestAnErrorOfTheConnectionIsOver(t *testing.T) {
	t.Parallel()
	row := func(state1 string) *Row {
		r := &Row{}
		r.Runs, r.Topics = true, []state.Topic{{Processes: []state.Process{{State: "connected"}, {State: state1}}}}
		r.failed("connection refused", "", time.Now())
		return r
	}
	require.True(t, row("connected").IsOver())
	require.False(t, row("away").IsOver())
	r := row("connected")
	r.failed("no such mailbox", "failure?cause=1", time.Now())
	require.False(t, r.IsOver())
	require.False(t, (&Row{}).IsOver())
}

// The numbers of a paused consumer are a sentence, wherever its messages wait.
func TestWaits(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		atBroker int64
		parked   int
	}{
		"": {0, 0}, "1 message waits at the broker": {1, 0}, "2\u00a0messages wait at the broker, 3 in the database": {2, 3},
		"3 messages wait in the database": {0, 3}, "1 message waits in the database": {0, 1}, "100+ messages wait in the database": {0, 100},
	} {
		r := &Row{Stats: state.Stats{Parked: c.parked, Counted: 100}}
		r.Topics = []state.Topic{{Waiting: state.Waiting{Known: true, Messages: c.atBroker}}}
		require.Equal(t, want, r.Waits())
	}
}

// A pause has the name of a read model for all of its generations. A name may contain an @ itself.
func TestNameOfAPause(t *testing.T) {
	t.Parallel()
	for consumer, want := range map[string]string{"mailer": "mailer", "totals@2": "totals", "totals@2/live": "totals", "mailer@eu": "mailer@eu"} {
		require.Equal(t, want, (&Row{Stats: state.Stats{Consumer: consumer}}).Name())
	}
}
