package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRunnerShowsWhatFailed(t *testing.T) {
	var out strings.Builder
	r := runner{out: &out}
	r.run(t.Context(), nil, "version", "version")
	require.False(t, r.failed)
	require.Regexp(t, `^ok +\S+  version\n$`, out.String())
	r.run(t.Context(), nil, "a command", "no-such-command")
	require.True(t, r.failed)
	require.Contains(t, out.String(), "unknown command")
}

func TestLinesOfPassingPackagesAreLeftOut(t *testing.T) {
	for line, passing := range map[string]bool{
		"ok  \tgithub.com/oncebox/oncebox/event\t0.1s\n": true, "?   \tx\t[no test files]\n": true,
		"FAIL\tx\t0.1s\n": false, "    a_test.go:3: broken\n": false,
	} {
		require.Equal(t, passing, isPassing(line), line)
	}
}
