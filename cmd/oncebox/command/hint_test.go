package command

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/events"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/stuck"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

// hints returns the commands that a text asks the reader to type: from the name of the program to the end of the line.
func hints(text string) []string {
	return regexp.MustCompile(`oncebox(-nats)? [a-z].*`).FindAllString(text, -1)
}

// A printed command is complete: typed as it is printed, in a shell, it does what the text says. The program is the one that was called.
func TestHintsRunAsTheyArePrinted(t *testing.T) {
	t.Setenv("EDITOR", "true")
	s := newShop(t)
	s.called = "oncebox-nats"
	s.killed()
	s.failing.Store(true)
	for n := range 3 {
		s.place(fmt.Sprintf("it's failing %d", n))
	}
	s.DrainFailing()
	s.failing.Store(false)
	for n := range 2 {
		s.FailNextPublish(messaging.Permanent(fmt.Errorf("the topic's schema %d has no \"field\"", n)))
		s.place(fmt.Sprintf("poison %d", n))
		s.DrainFailing()
	}
	s.broken.Store(true)
	s.place("another message")
	s.DrainFailing()
	s.broken.Store(false)
	s.unknownStep()
	for _, tenant := range []string{"a tenant's", "-t1"} {
		require.NoError(t, s.App.Outbox.Tenants().Pause(t.Context(), tenant, operator.By{Actor: "ann", Reason: "they are away"}))
	}
	s.exec("UPDATE outbox_tenant SET paused_at = paused_at - interval '2 days'")

	seen := map[string]answer{}
	var follow func(text string)
	follow = func(text string) {
		for _, hint := range hints(text) {
			if _, done := seen[hint]; done || strings.HasPrefix(hint, "oncebox-nats relay") {
				continue
			}
			require.True(t, strings.HasPrefix(hint, "oncebox-nats "), "another program: %s", hint)
			line := words(t, hint)
			if slices.ContainsFunc(line, func(word string) bool { return word == "--by" }) {
				seen[hint] = s.asked("n\n", line...) // all of them are seen before one is done
				require.Contains(t, []int{cli.ExitRefused, cli.ExitUsage}, seen[hint].code, "%s: %s", hint, seen[hint].errs)
				require.NotContains(t, seen[hint].errs, "missing", hint)
				require.NotRegexp(t, "unknown (command|flag|shorthand)", seen[hint].errs, hint)
				continue
			}
			seen[hint] = s.asked("", line...)
			require.Contains(t, []int{cli.ExitDone, cli.ExitFindings}, seen[hint].code, "%s: %s", hint, seen[hint].errs)
			follow(seen[hint].out + seen[hint].errs)
		}
	}
	for _, begin := range []string{"stuck", "stuck --each", "dead list --limit 1", "keys list", "parked list", "status"} {
		follow("oncebox-nats " + begin)
	}
	require.Greater(t, len(seen), 15, "%v", seen)
	for _, part := range []string{
		"dead replay", "dead edit", "dead discard", "parked retry", "keys resolve", "tenants resume", "failures replay", "failures retry",
	} {
		require.Contains(t, fmt.Sprint(seen), part)
	}
	for hint := range seen {
		if strings.Contains(hint, "parked retry") || strings.Contains(hint, "failures re") || strings.Contains(hint, "--not-done") ||
			strings.HasSuffix(hint, " -- -t1") {
			a := s.typed(hint)
			require.Contains(t, []int{cli.ExitDone, cli.ExitNothing}, a.code, "%s: %s", hint, a.errs)
		}
	}
	s.Drain()
	require.NotContains(t, s.stuck(), "message failing")
}

// An id may begin with a dash, as one of nanoid does. It is no flag then, wherever it comes from.
func TestHintsNameIDsThatBeginWithADash(t *testing.T) {
	var p cli.Program
	for want, hint := range map[string]string{
		`oncebox dead show --consumer billing -- -V1StGXR8_Z5`:                 p.Typed("dead", "show", "-V1StGXR8_Z5", "--consumer", "billing"),
		`oncebox parked retry --consumer billing --by "$USER" -- -V1StGXR8_Z5`: p.Decided("parked", "retry", "-V1StGXR8_Z5", "--consumer", "billing"),
		`oncebox keys resolve --not-done --why x --by "$USER" -- --V1 a-step`:  p.Decided("keys", "resolve", "--V1", "a-step", "--not-done", "--why", "x"),
		`oncebox keys resolve 17 --done null --by "$USER" -- '-a step'`:        p.Decided("keys", "resolve", "17", "-a step", "--done", "null"),
		`oncebox tenants resume --by "$USER" -- -acme`:                         p.Decided("tenants", "resume", "-acme"),
		`oncebox parked retry m-17 --consumer -b --by "$USER"`:                 p.Decided("parked", "retry", "m-17", "--consumer", "-b"),
		`oncebox dead replay --consumer billing --error -ERR --by "$USER"`:     p.Decided("dead", "replay", "--consumer", "billing", "--error", "-ERR"),
		`oncebox doctor`: p.Typed("doctor"),
	} {
		require.Equal(t, want, hint)
	}
}

// The examples and the commands within the help of each command can be typed: no flag of them is missing, wrong or unknown.
func TestExamplesCanBeTyped(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ran := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, line := range regexp.MustCompile(`(?m)^  oncebox .*$`).FindAllString(cmd.Long+"\n"+cmd.Example, -1) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " | ")
			line, _, _ = strings.Cut(line, " >> ")
			if strings.Contains(line, "--watch") || strings.HasPrefix(line, "oncebox relay") || strings.HasSuffix(line, ":") {
				continue // they do not end
			}
			a := s.oncebox(words(t, line)...)
			missing := strings.Contains(a.errs, "no such file") || strings.Contains(a.errs, "there is no editor")
			require.True(t, a.code != cli.ExitUsage || missing, "%s: %s", line, a.errs)
			ran++
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&cli.Session{Terminal: &cli.Terminal{}}))
	require.Greater(t, ran, 40)
}

// Where nobody can answer, no flag is named that the command does not have.
func TestNoFlagIsNamedThatDoesNotExist(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.killed()
	s.failing.Store(true)
	s.place("failing message")
	s.DrainFailing()
	s.unknownStep()
	s.delayed()
	found := s.stuck()
	delayed := document[[]events.DelayedEvent](t, s.oncebox("delayed", "list", "--json"))[0].ID
	by := []string{"--by", "ann", "--why", "x"}
	for _, args := range [][]string{
		append([]string{"parked", "retry", found["message failing"].MessageKey, "--consumer", "billing"}, by...),
		append([]string{"parked", "retry", "--all"}, by...),
		append([]string{"parked", "give-up", found["message failing"].MessageKey, "--consumer", "billing"}, by...),
		append([]string{"keys", "resolve", found["step unknown"].ID, "charge", "--not-done"}, by...),
		append([]string{"dead", "replay", "--all"}, by...), append([]string{"dead", "discard", "--all"}, by...),
		append([]string{"delayed", "cancel", delayed}, by...), append([]string{"delayed", "move", delayed, "--to", "1h"}, by...),
		append([]string{"tenants", "pause", "acme"}, by...), append([]string{"tenants", "move", "acme", "1"}, by...),
		{"retention", "run"},
	} {
		a := s.oncebox(args...)
		require.Equal(t, cli.ExitRefused, a.code, "%v: %s", args, a.errs)
		cmd, _, err := newRoot(&cli.Session{Terminal: &cli.Terminal{}}).Find(args)
		require.NoError(t, err)
		for _, flag := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(a.errs, -1) {
			require.NotNil(t, cmd.Flags().Lookup(flag[1]), "%v names --%s", args, flag[1])
		}
		require.Contains(t, a.errs, "--yes")
	}
}

// One cause is one line, and the total is a total, however much is shown.
func TestOneCauseIsOneLine(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.refuse = func(*messaging.Message) error {
		return messaging.RetryAfter(time.Hour, errors.New("smtp 421: connection refused"))
	}
	const many = 120
	for n := range many {
		s.place(fmt.Sprint("o-", n))
	}
	s.DrainFailing()
	s.refuse = nil
	a := s.oncebox("stuck")
	require.Equal(t, cli.ExitFindings, a.code)
	require.Regexp(t, `^message failing  billing: 120 ordering keys fail, "smtp …: connection refused", since \d{4}-\S+, next try in [\dhms]+\n`, a.out)
	require.Less(t, strings.Count(a.out, "\n"), 7, a.out)
	require.Contains(t, a.errs, "120 things are stuck, for 1 reason")

	each := s.oncebox("stuck", "--each", "--limit", "100")
	require.Equal(t, 100, strings.Count(each.out, "message failing"))
	require.Contains(t, each.errs, "100 of 120 shown: --limit 120 shows all.")
	require.Contains(t, each.errs, "120 things are stuck")
	require.Len(t, list[stuck.Item](t, s.oncebox("stuck", "--json", "--limit", "7")), 7)
	page := s.oncebox("parked", "list", "--first", "--limit", "3")
	require.Contains(t, page.errs, "3 of 120 shown: --limit 120 shows all.")

	dry := s.oncebox("parked", "retry", "--consumer", "billing", "--error", "connection refused", "--dry-run")
	require.Equal(t, "120 messages would be tried at once.\n", dry.out, dry.errs)
	_, hint, _ := strings.Cut(a.out, "at once with: ")
	retried := s.typed(strings.TrimSpace(hint))
	require.Equal(t, "120 failing messages tried at once\n", retried.out, retried.errs)
	s.Drain()
	require.EqualValues(t, many, s.billed.Load())
	require.Equal(t, "Nothing is stuck.\n", s.oncebox("stuck").out)
	require.Equal(t, cli.ExitNothing, s.oncebox("parked", "retry", "--all", "--by", "ann", "--yes").code)
	for _, args := range [][]string{
		{}, {"--all"}, {"--all", "--consumer", "billing", "--by", "ann"}, {"k", "--by", "ann"}, {"--all", "--by", "ann", "--rate", "-1"},
	} {
		require.Equal(t, cli.ExitUsage, s.oncebox(append([]string{"parked", "retry"}, args...)...).code, args)
	}
}
