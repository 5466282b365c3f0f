package command

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/dead"
	"github.com/oncebox/oncebox/operator"
)

func TestDeadLettersAreFoundReplayedAndHandled(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()

	list := document[[]dead.Letter](t, s.oncebox("dead", "list", "--json"))
	require.Len(t, list, 2)
	require.Equal(t, []string{"inbox", "outbox"}, []string{list[0].Box, list[1].Box}, "the oldest first")
	require.Equal(t, "billing", list[0].Consumer)
	require.Equal(t, "no schema", list[1].Error)
	require.True(t, list[0].Holds)

	whole := document[[]dead.Letter](t, s.oncebox("dead", "show", list[1].ID, "--payload", "--json"))
	require.Len(t, whole, 1)
	require.JSONEq(t, `{"Order":"poison event"}`, string(whole[0].Payload))
	without := document[[]map[string]json.RawMessage](t, s.oncebox("dead", "show", list[0].ID, "--json"))
	require.NotContains(t, without[0], "payload")

	require.Equal(t, dead.Result{Action: "replay", DryRun: true, Counts: dead.Counts{Outbox: 1, Inbox: 1}},
		document[dead.Result](t, s.oncebox("dead", "replay", "--all", "--by", "ann", "--dry-run", "--json")))
	require.Len(t, document[[]dead.Letter](t, s.oncebox("dead", "list", "--json")), 2, "a dry run changes nothing")
	replayed := document[dead.Result](t, s.oncebox("dead", "replay", "--all", "--by", "ann", "--why", "mended", "--yes", "--json"))
	require.Equal(t, dead.Result{Action: "replay", DryRun: false, Counts: dead.Counts{Outbox: 1, Inbox: 1}}, replayed)
	s.Drain()
	require.EqualValues(t, 2, s.billed.Load())
	require.Empty(t, document[[]dead.Letter](t, s.oncebox("dead", "list", "--json")))

	published, err := s.App.Outbox.Audit(t.Context(), operator.AuditFilter{EventID: list[1].ID}, nil, 10)
	require.NoError(t, err)
	require.Len(t, published, 1)
	require.Equal(t, []string{"ann", "replay", "mended"}, []string{published[0].Actor, string(published[0].Action), published[0].Reason})
	handled, err := s.App.Inbox.Audit(t.Context(), operator.AuditFilter{}, nil, 10)
	require.NoError(t, err)
	require.Len(t, handled, 1)
	require.Equal(t, []string{"ann", "replay", "mended"}, []string{handled[0].Actor, string(handled[0].Action), handled[0].Reason})
}

func TestDiscardDeletesTheOneWithTheID(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()
	list := document[[]dead.Letter](t, s.oncebox("dead", "list", "--outbox", "--json"))
	require.Len(t, list, 1)
	id := list[0].ID

	a := s.oncebox("dead", "discard", id, "--by", "ann", "--why", "test data", "--yes")
	require.Equal(t, answer{out: "1 dead letter discarded (1 of the outbox, 0 of consumers)\n"}, a)
	require.Equal(t, cli.ExitNothing, s.oncebox("dead", "show", id).code)
	require.Equal(t, cli.ExitNothing, s.oncebox("dead", "discard", id, "--by", "ann", "--why", "test data", "--yes").code)
	require.Len(t, document[[]dead.Letter](t, s.oncebox("dead", "list", "--json")), 1, "the other one stays")
}

func TestSelectionOfDeadLetters(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()
	for _, test := range []struct {
		flags []string
		want  []string
	}{
		{nil, []string{"inbox", "outbox"}},
		{[]string{"--outbox"}, []string{"outbox"}},
		{[]string{"--inbox"}, []string{"inbox"}},
		{[]string{"--consumer", "billing"}, []string{"inbox"}},
		{[]string{"--consumer", "shipping"}, nil},
		{[]string{"--topic", "order", "--type", "order.placed", "--tenant", "default"}, []string{"inbox", "outbox"}},
		{[]string{"--tenant", "acme"}, nil},
		{[]string{"--topic", "invoice"}, nil},
		{[]string{"--type", "order.cancelled"}, nil},
		{[]string{"--error", "no schema"}, []string{"outbox"}},
		{[]string{"--died-from", "1h"}, []string{"inbox", "outbox"}},
		{[]string{"--died-before", "1h"}, nil},
		{[]string{"--died-from", "2020-01-02T15:04:05Z", "--limit", "1"}, []string{"inbox"}},
	} {
		var got []string
		for _, l := range document[[]dead.Letter](t, s.oncebox(append([]string{"dead", "list", "--json"}, test.flags...)...)) {
			got = append(got, l.Box)
		}
		require.Equal(t, test.want, got, "%q", test.flags)
	}
	require.Contains(t, s.oncebox("dead", "list", "--limit", "1").errs, "There are more")
}

// An error may contain any characters. A table shows it on one line, without the control characters that a terminal would obey.
func TestTablesObeyNoText(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()
	id := document[[]dead.Letter](t, s.oncebox("dead", "list", "--inbox", "--json"))[0].ID
	for _, args := range [][]string{{"dead", "list", "--inbox"}, {"dead", "show", id}} {
		a := s.oncebox(args...)
		require.Zero(t, a.code, a.errs)
		require.NotContains(t, a.out, "\x1b")
		require.NotContains(t, a.out, "\r")
		require.Contains(t, a.out, "unknown currency \uFFFD[31mXYZ")
		require.NotContains(t, a.out, "\nDONE")
	}
}

func TestWhatIsMissingIsSaidBeforeAnythingIsDone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()
	const id = "0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e"
	for _, test := range []struct {
		code int
		says string
		args []string
	}{
		{cli.ExitUsage, "--by is missing", []string{"dead", "replay", id}},
		{cli.ExitUsage, "--why is missing", []string{"dead", "discard", id, "--by", "ann"}},
		{cli.ExitUsage, "nothing is selected", []string{"dead", "replay", "--by", "ann"}},
		{cli.ExitUsage, "nothing is selected", []string{"dead", "replay", "--by", "ann", "--outbox"}},
		{cli.ExitUsage, "contradicts ids and flags", []string{"dead", "replay", id, "--all", "--by", "ann"}},
		{cli.ExitUsage, `"order-7" is not an id`, []string{"dead", "replay", "order-7", "--by", "ann"}},
		{cli.ExitUsage, `--died-from "yesterday"`, []string{"dead", "list", "--died-from", "yesterday"}},
		{cli.ExitUsage, "--limit is below 1", []string{"dead", "list", "--limit", "0"}},
		{cli.ExitUsage, "contradicts --inbox", []string{"dead", "list", "--outbox", "--inbox"}},
		{cli.ExitUsage, "unknown flag: --tenat", []string{"dead", "list", "--tenat", "acme"}},
		{cli.ExitUsage, `has no command "lst"`, []string{"dead", "lst"}},
		{cli.ExitUsage, `oncebox has no command "letters"`, []string{"letters"}},
		{cli.ExitUsage, "takes one id", []string{"dead", "show"}},
		{cli.ExitUsage, "takes no argument", []string{"dead", "list", id}},
		{cli.ExitNothing, "no dead letter has the id " + id, []string{"dead", "show", id}},
		{cli.ExitNothing, "nothing was done", []string{"dead", "replay", id, "--by", "ann", "--yes"}},
		{cli.ExitNothing, "nothing was done", []string{"dead", "replay", "--topic", "invoice", "--by", "ann", "--yes"}},
		{cli.ExitRefused, "give --yes", []string{"dead", "replay", "--all", "--by", "ann"}},
	} {
		a := s.oncebox(test.args...)
		require.Equal(t, test.code, a.code, "%q: %s", test.args, a.errs)
		require.Contains(t, a.errs, test.says, "%q", test.args)
		require.Empty(t, a.out, "%q", test.args)
	}
	for _, action := range []string{"replay", "discard"} {
		counted := s.oncebox("dead", action, "--all", "--dry-run")
		require.Zero(t, counted.code, "a count needs no name: %s", counted.errs)
		require.Contains(t, counted.out, "2 dead letters would be")
	}
	list := document[[]dead.Letter](t, s.oncebox("dead", "list", "--json"))
	a := s.oncebox("dead", "replay", list[0].ID, id, "--by", "ann", "--yes")
	require.Equal(t, cli.ExitNothing, a.code)
	require.Contains(t, a.errs, "no dead letter has the id "+id)
	require.Len(t, document[[]dead.Letter](t, s.oncebox("dead", "list", "--json")), 2)
}

func TestNothingIsDoneWithoutAYes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()
	for _, reply := range []string{"", "\n", "n\n", "yeah\n"} {
		a := s.asked(reply, "dead", "replay", "--all", "--by", "ann")
		require.Equal(t, cli.ExitRefused, a.code, "%q", reply)
		require.Contains(t, a.errs, "replay 2 dead letters (1 of the outbox, 1 of consumers)? [y/N]")
		require.Contains(t, a.errs, "nothing was done")
		require.Len(t, document[[]dead.Letter](t, s.oncebox("dead", "list", "--json")), 2)
	}
	a := s.asked("y\n", "dead", "replay", "--all", "--by", "ann")
	require.Zero(t, a.code, a.errs)
	require.Contains(t, a.errs, "[##############################] 2 of 2 replayed\n")
	require.Empty(t, document[[]dead.Letter](t, s.oncebox("dead", "list", "--json")))
}
