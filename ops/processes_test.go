package ops_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/ops/processes"
)

// A process is one entry, with the lanes of its relay, its consumers, and the trouble that began first. A process that has not entered itself is listed by
// what it runs, and one that was killed comes last.
func TestProcesses(t *testing.T) {
	s := newService(t)
	leases := lanedb.Of(s.App.Outbox.Handle()).Leases
	for _, relay := range []string{"relay-a", "relay-b"} {
		_, err := leases.Heartbeat(t.Context(), relay, 0, time.Hour)
		require.NoError(t, err)
	}
	require.NoError(t, leases.NoteFailure(t.Context(), "relay-a", "no such topic", "refund", 0, 0))
	require.NoError(t, leases.NoteFailure(t.Context(), "relay-a", "context deadline exceeded", "", 0, time.Minute)) // began before that of the topic
	const inbox = "00000000-0000-0000-0000-00000000000a"
	for _, statement := range []string{
		`DELETE FROM inbox_process`,
		`INSERT INTO oncebox_process (process, name, host, service, version, library, parts, relay, reporter, broker, seen_until) VALUES
			(gen_random_uuid(), 'vm-1', 'vm', 'shop', 'v2', 'v1', 'relay consumers', 'relay-a', '` + inbox + `', 'Pulsar', now() + interval '1 minute'),
			(gen_random_uuid(), 'vm-0', 'vm', 'shop', '', '', 'cleaner', '', NULL, '', now() - interval '1 hour'),
			(gen_random_uuid(), 'long gone', 'vm', 'shop', '', '', 'cleaner', '', NULL, '', now() - interval '2 days')`,
		`INSERT INTO inbox_process (consumer, topic, process, name, state, since, unsettled, error, seen_until) VALUES
			('mailer', 'order', '` + inbox + `', 'vm-1', 'CONNECTED', now(), 0, '', now() + interval '1 minute'),
			('mailer', 'refund', '` + inbox + `', 'vm-1', 'AWAY', now() - interval '10 seconds', 0, 'no route', now() + interval '1 minute'),
			('audit', 'order', gen_random_uuid(), 'vm-2', 'CONNECTED', now(), 0, '', now() + interval '1 minute')`,
	} {
		_, err := s.DB.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	list, err := processes.List(t.Context(), s.DB, s.App.Outbox, s.App.Inbox)
	require.NoError(t, err)
	var names []string
	for n := range list {
		names = append(names, list[n].Name)
	}
	require.Equal(t, []string{"relay-b", "vm-1", "vm-2", "vm-0"}, names)
	full := &list[1]
	require.Equal(t, []string{"relay", "consumers"}, full.Parts)
	require.Len(t, full.Consumers, 1)
	require.Equal(t, []any{"mailer", "away"}, []any{full.Consumers[0].Consumer, full.Consumers[0].State})
	require.Regexp(t, `^Pulsar has failed since \d\d:\d\d:\d\d UTC: context deadline exceeded$`, full.Trouble(), "that began first")
	require.InDelta(t, time.Minute, time.Since(full.Since), float64(30*time.Second))
	require.Empty(t, list[2].Trouble())
	require.Equal(t, []string{"consumers"}, list[2].Parts)
	require.False(t, list[3].Alive)

	require.Empty(t, processes.Mixed(list), "one version is known")
	older := *full
	older.Name, older.Version = "vm-3", "v1"
	list = append(list, older)
	require.Equal(t, []string{"Several versions of shop run: v1 (vm-3), v2 (vm-1)."}, processes.Mixed(list))
	for _, c := range []struct {
		by    []string
		want  string
		fails bool
	}{
		{[]string{"vm-3 v1"}, "Their last tries failed only in v1 (vm-3), and none in v2 (vm-1), which runs mailer, too.", true},
		{[]string{"gone-1 v0", "vm-3 v1"}, "Their last tries failed only in v1 (vm-3), and none in v2 (vm-1), which runs mailer, too. " +
			"Tries failed in v0 (gone-1) as well, which no longer runs.", true},
		{[]string{"gone-1 v0"}, "Their last tries failed in v0 (gone-1), which no longer runs. v1 (vm-3), v2 (vm-1) tries them next.", false},
	} {
		text, fails := processes.FailsIn(list, "mailer", c.by)
		require.Equal(t, c.want, text)
		require.Equal(t, c.fails, fails, text)
	}
	failing := failures.Group{Failing: failures.Tally{Count: 1, FailedBy: []string{"vm-1 v1"}}}
	processes.AddFailures(list, []failures.Group{failing})
	require.Empty(t, list[1].Failing, "a build that had the name of the process before")
	failing.Failing.FailedBy = []string{"vm-1 v2"}
	processes.AddFailures(list, []failures.Group{failing})
	require.Len(t, list[1].Failing, 1)
	anonymous := processes.Process{}
	anonymous.Name, anonymous.Alive = "vm-1", true
	alone := []processes.Process{anonymous}
	processes.AddFailures(alone, []failures.Group{failing})
	require.Len(t, alone[0].Failing, 1, "without oncebox.App it has not reported its version")

	// The web processes still have the version of the workers that were replaced, and do not run the consumer.
	web := processes.Process{}
	web.Name, web.Version, web.Service, web.Alive = "web-1", "v0", "shop", true
	text, fails := processes.FailsIn(append(slices.Clone(list), web), "mailer", []string{"gone-1 v0"})
	require.Equal(t, "Their last tries failed in v0 (gone-1), which no longer runs. v1 (vm-3), v2 (vm-1) tries them next.", text)
	require.False(t, fails)
	for why, by := range map[string][]string{
		"both fail": {"vm-1 v2", "vm-3 v1"}, "a version is not known": {"vm-3 v1", "vm-9"}, "nothing fails": nil,
	} {
		text, _ := processes.FailsIn(list, "mailer", by)
		require.Empty(t, text, why)
	}
	text, _ = processes.FailsIn(list, "stats", []string{"vm-3 v1"})
	require.Empty(t, text, "no other version runs it")
	list[len(list)-1].Service = "bank"
	require.Empty(t, processes.Mixed(list), "of another service")
	list[len(list)-1].Service, list[len(list)-1].Alive = "shop", false
	require.Empty(t, processes.Mixed(list), "it has ended")

	nothing, err := processes.List(t.Context(), s.DB, nil, nil)
	require.NoError(t, err)
	require.Empty(t, nothing)
}
