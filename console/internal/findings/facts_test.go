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
	"github.com/oncebox/oncebox/outbox/tenants"
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

	// The old build has ended. Its messages wait for their next try, in the new build.
	facts.Processes, facts.Causes = facts.Processes[1:], facts.Causes[:1]
	list = facts.List()
	require.Len(t, list, 1)
	require.Contains(t, list[0].Versions, "failed in v1.8.0 (worker-0), which no longer runs. v1.9.0 (worker-1) tries them next.")
	facts.Processes = append(facts.Processes, process("worker-2", "v2.0.0"))
	list = facts.List()
	require.Len(t, list, 2)
	require.NotContains(t, list[0].Text, "20")
	require.Empty(t, list[0].Under, "neither of the builds that run refuses them")
}

// While one of two relays publishes, or only a topic takes nothing, no broker is away. What consumers lack is not what relays lack.
func TestAnOutageIsOfRelaysOrOfConsumers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 28, 5, 45, 20, 0, time.UTC)
	process := func(name string, lanes int, publishing, receiving processes.Fault) (p processes.Process) {
		p.Name, p.Alive, p.Broker, p.Lanes, p.Publishing, p.Receiving = name, true, "Pulsar", lanes, publishing, receiving
		return p
	}
	refused := processes.Fault{Error: "refused", Since: now.Add(-time.Minute)}
	partly := processes.Fault{Error: "one connection is missing", Since: now.Add(-2 * time.Minute)}
	row := consumer.Row{}
	row.Runs, row.Topics = true, []state.Topic{{Topic: "order", Processes: []state.Process{{State: "partly", Since: now}}}}
	first := func(list ...processes.Process) string {
		all := (&findings.Facts{Now: now, Processes: list, Consumers: []consumer.Row{row}}).List()
		if len(all) == 0 {
			return ""
		}
		return all[0].Text
	}
	require.Equal(t, "Pulsar has taken nothing since 05:44:20 UTC: nothing is published, 0 events wait. Reported by web. The first error: refused",
		first(process("web", 64, refused, processes.Fault{}), process("worker", 0, processes.Fault{}, partly)))
	other := refused
	other.Topic = "parcel"
	for why, list := range map[string][]processes.Process{
		"the other relay publishes": {process("web", 32, refused, processes.Fault{}), process("web-2", 32, processes.Fault{}, processes.Fault{})},
		"only a topic":              {process("web", 64, other, processes.Fault{})},
	} {
		require.NotContains(t, first(list...), "has taken nothing", why)
	}
}

// A service that has just begun has consumers without a connection, and without an error: no broker is away.
func TestAStartIsNoOutage(t *testing.T) {
	t.Parallel()
	now := time.Now()
	row := consumer.Row{}
	row.Runs = true
	row.Topics = []state.Topic{{Topic: "order", Processes: []state.Process{{State: "away", Since: now}}, Waiting: state.Waiting{Known: true, At: now}}}
	p := processes.Process{}
	p.Name, p.Alive = "web", true
	require.Empty(t, (&findings.Facts{Now: now, Processes: []processes.Process{p}, Consumers: []consumer.Row{row}}).List())
	p.Receiving = processes.Fault{Error: "refused", Since: now}
	require.Len(t, (&findings.Facts{Now: now, Processes: []processes.Process{p}, Consumers: []consumer.Row{row}}).List(), 1)
}

// If not all events are counted, those of a paused tenant may not have been seen.
func TestEventsOfAPausedTenant(t *testing.T) {
	t.Parallel()
	text := func(st *outboxstate.Stats) string {
		list := (&findings.Facts{Now: time.Now(), Outbox: st, Paused: []tenants.Pause{{Tenant: "acme", Actor: "ann", Reason: "moves"}}}).List()
		return list[len(list)-1].Text
	}
	require.Contains(t, text(&outboxstate.Stats{New: 10}), "moves. 0\u00a0events wait for that.")
	require.Contains(t, text(&outboxstate.Stats{New: 1_000_000}), "moves. How many events wait for that is not known.")
	shares := []outboxstate.Share{{Tenant: "acme", Paused: 7}}
	require.Contains(t, text(&outboxstate.Stats{New: 1_000_000, Paused: 7, Shares: shares}), "moves. 7\u00a0events wait for that.")
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

	// Its line stands above the decisions.
	letters := consumer.Row{}
	letters.Stats.Consumer, letters.DeadLetters = "invoices", 1
	list := (&findings.Facts{Now: now, Causes: []ops.Cause{cause("mailer", "a", 477)}, Went: went(0, 90), Consumers: []consumer.Row{letters}}).List()
	require.Equal(t, []string{"down", "decide"}, []string{list[0].Word, list[1].Word})
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
