package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the runbook says to type is there: the command, and each of its flags.
func TestRunbookNamesCommandsThatExist(t *testing.T) {
	page, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	named := regexp.MustCompile("`oncebox ([a-z][^`]*)`").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, named)
	for _, what := range named {
		words := strings.Fields(what[1])
		command, rest, err := newRoot(&session{}).Find(words)
		require.NoError(t, err, what[0])
		require.True(t, command.Runnable() && (len(rest) < len(words)), what[0])
		if len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			require.False(t, command.HasSubCommands(), "%s: %s is no command", what[0], rest[0])
		}
		for _, flag := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(what[1], -1) {
			found := command.Flags().Lookup(flag[1])
			if found == nil {
				found = command.InheritedFlags().Lookup(flag[1])
			}
			require.NotNil(t, found, "%s: there is no flag %s", what[0], flag[0])
		}
	}
}
