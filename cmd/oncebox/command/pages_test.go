package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/shlex"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/internal/pagetest"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

// typed are the calls of this command on a page, without the name of the program.
func typed(t *testing.T, page string) (all [][]string) {
	t.Helper()
	for _, line := range pagetest.Lines(page, `oncebox(?:-nats|-kafka|-rabbitmq)? (\S.*)`) {
		words, err := shlex.Split(line)
		require.NoError(t, err, line)
		all = append(all, words)
	}
	return all
}

// understood compares a line with the commands and their flags, without running it. A line with nothing behind the name of the command only names it.
func understood(words []string) error {
	root := newRoot(&cli.Session{Terminal: &cli.Terminal{}, Brokers: brokers.Choice{Kinds: []brokers.Kind{pulsar.Kind()}}})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(words)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	arguments := cmd.Flags().Args()
	if cmd.HasSubCommands() && len(arguments) > 0 {
		return fmt.Errorf("%s has no command %s", cmd.CommandPath(), arguments[0])
	}
	if len(rest) == 0 {
		return nil
	}
	return cmd.ValidateArgs(arguments)
}

// No page has a command or a flag that does not exist.
func TestCommandsOfPagesAreUnderstood(t *testing.T) {
	t.Parallel()
	seen := 0
	for page, text := range pagetest.Pages(t, "../../..") {
		for _, words := range typed(t, text) {
			seen++
			if err := understood(words); err != nil {
				t.Errorf("%s: oncebox %s: %v", page, strings.Join(words, " "), err)
			}
		}
	}
	require.Greater(t, seen, 150)
}

func TestWrongCommandsOfPagesAreFound(t *testing.T) {
	t.Parallel()
	page := "`oncebox tidy`, `oncebox stuck --colour red`, `oncebox\ndead shw ID`, not `oncebox.Serve`\n\n" +
		"```sh\n$ ONCEBOX_SCHEMA=x oncebox-nats status --watch --for 3   # a comment\noncebox grants | psql\noncebox parked retry --all --by ann > out\n```\n"
	var faults []string
	for _, words := range typed(t, page) {
		faults = append(faults, fmt.Sprint(errors.Join(understood(words))))
	}
	require.Len(t, faults, 6, faults)
	require.Contains(t, faults[0], "--for")
	require.Equal(t, "<nil>", faults[1], "it is only named")
	require.Equal(t, "<nil>", faults[2])
	require.Contains(t, faults[3], "tidy")
	require.Contains(t, faults[4], "--colour")
	require.Contains(t, faults[5], "shw")
}

// Each command of the pages for operators is complete: it may find nothing, or ask, but it does not say that something is missing.
func TestCommandsForOperatorsAreComplete(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const id, key = "0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e", "0d6e9c9fa3ba532dde3a924c6a36fa47ba3464d5260fe4af47226b81dbfac066"
	places := map[string]string{"ID": id, "KEY": key, "STEP": "charge", "adopt.yaml": "../../../examples/adopt/mappings/handwritten.yaml"}
	ran := 0
	for page, text := range pagetest.Pages(t, "../../..") {
		if strings.HasPrefix(page, "docs/migrating/") || page == "docs/operating.md" || page == "docs/releasing.md" { // they have tests of their own
			continue
		}
		for _, words := range typed(t, text) {
			runs := []string{"status", "stuck", "lanes", "doctor", "reconcile", "list", "verify", "up", "run"}
			named := len(words) <= 2 && !strings.HasPrefix(words[len(words)-1], "-") // only named, as in "oncebox dead edit"
			if named && !slices.Contains(runs, words[len(words)-1]) ||
				slices.Contains(words, "--watch") || words[0] == "relay" || words[0] == "completion" { // they do not end
				continue
			}
			for i, word := range words {
				if place := places[word]; place != "" {
					words[i] = place
				}
			}
			if words[0] == "adopt" {
				words = append(words, "--source", "shop")
			}
			a := s.oncebox(words...)
			require.NotEqual(t, cli.ExitUsage, a.code, "%s: %s: %s", page, strings.Join(words, " "), a.errs)
			ran++
		}
	}
	require.Greater(t, ran, 40)
}
