package findings_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/console/internal/consumer"
	"github.com/oncebox/oncebox/console/internal/findings"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/ops/processes"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// cause is a cause for which ordering keys of a consumer fail.
func cause(consumer, fingerprint string, count int, failedBy ...string) ops.Cause {
	return ops.Cause{Count: count, Text: "version 2 is unknown", Failures: &failures.Group{Consumer: consumer, Cause: "version … is unknown"}, Stuck: ops.Stuck{
		Kind: ops.MessageFailing, Consumer: consumer, Fingerprint: fingerprint, FailedBy: failedBy,
	}}
}

// What fails in an old build only is one line, with the consumers below. A failure in all builds is a line of its own.
func TestAnOldBuildIsOneLine(t *testing.T) {
	t.Parallel()
	process := func(name, version string) processes.Process {
		p := processes.Process{Consumers: []processes.Running{{Consumer: "mailer"}, {Consumer: "stats"}, {Consumer: "ledger"}}}
		p.Name, p.Version, p.Service, p.Alive = name, version, "shop", true
		return p
	}
	facts := &findings.Facts{
		Now: time.Now(), Processes: []processes.Process{process("worker-0", "v1.8.0"), process("worker-1", "v1.9.0")},
		Causes: []ops.Cause{
			cause("mailer", "a", 20, "worker-0 v1.8.0"), cause("stats", "b", 18, "worker-0 v1.8.0"),
			cause("ledger", "c", 1, "worker-0 v1.8.0", "worker-1 v1.9.0"),
		},
	}
	list := facts.List()
	require.Len(t, list, 2)
	require.Equal(t, "Several versions of shop run: v1.8.0 (worker-0), v1.9.0 (worker-1). 38\u00a0ordering keys fail at mailer, stats. "+
		"An older version may refuse what a newer one sends.", list[0].Text)
	require.Contains(t, list[0].Versions, "failed only in v1.8.0 (worker-0), and none in v1.9.0")
	require.Len(t, list[0].Under, 2)
	require.Equal(t, []findings.Link{{Name: "mailer:", Href: "consumer?name=mailer"}}, list[0].Under[0].Who)
	require.Equal(t, []findings.Link{{Name: "ledger:", Href: "consumer?name=ledger"}}, list[1].Who)
}

// A consumer that handles nothing, because what it needs is away, is down. A consumer with a few bad messages and nothing else to do is not.
func TestAConsumerThatHandlesNothingIsDown(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 5, 45, 20, 0, time.UTC)
	went := func(went, failed int64) map[string]operator.History {
		return map[string]operator.History{"mailer": {Figures: []operator.Figures{
			{At: now.Truncate(time.Minute).Add(-time.Minute), Span: time.Minute, Went: 300},
			{At: now.Truncate(time.Minute), Span: time.Minute, Went: went, Failed: failed},
		}}}
	}
	words := func(count int, went map[string]operator.History) string {
		list := (&findings.Facts{Now: now, Causes: []ops.Cause{cause("mailer", "a", count)}, Went: went}).List()
		require.Len(t, list, 1)
		return list[0].Word
	}
	require.Equal(t, "down", words(477, went(0, 90)))
	require.Equal(t, "look", words(477, went(1, 90)))
	require.Equal(t, "look", words(2, went(0, 90)))
	require.Equal(t, "look", words(477, nil))
}

// Many events are no all-clear, before they are late.
func TestManyEventsWait(t *testing.T) {
	t.Parallel()
	of := func(events int64, age time.Duration) []findings.Finding {
		st := &outboxstate.Stats{OldestAge: age}
		st.New = events
		return (&findings.Facts{Now: time.Now(), Outbox: st, Trend: "falling"}).List()
	}
	require.Empty(t, of(1000, time.Second))
	list := of(6304, 4*time.Second)
	require.Len(t, list, 1)
	require.Equal(t, "wait", list[0].Word)
	require.Equal(t, "6\u202f304\u00a0events wait to be published, the oldest for 4\u00a0s, falling.", list[0].Text)
	list = of(6304, 2*time.Minute)
	require.Len(t, list, 1)
	require.Equal(t, "look", list[0].Word)
}

// A consumer without a connection is as serious as the line about its broker.
func TestAConsumerWithoutAConnectionIsBad(t *testing.T) {
	t.Parallel()
	row := consumer.Row{}
	row.Runs = true
	row.Topics = []state.Topic{{Topic: "order", Processes: []state.Process{{State: "away", Since: time.Now()}}}}
	require.Equal(t, []string{"bad", "no connection"}, []string{row.State(), row.Word()})
	row.Topics[0].Processes = append(row.Topics[0].Processes, state.Process{State: "connected"})
	require.Equal(t, []string{"warn", "runs in part"}, []string{row.State(), row.Word()})
}
