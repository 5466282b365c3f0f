package httpmwtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/watched"
)

// watch runs a row and returns its complaint, "" if it passed.
func watch(t *testing.T, target Target, c testCase) string {
	t.Helper()
	return watched.Run(t.Context(), func(by *watched.T) { c.run(open(by, target)) })
}

func TestRecorder(t *testing.T) {
	cleaned := false
	said := watch(t, Target{}, testCase{run: func(s *session) {
		s.t.Cleanup(func() { cleaned = true })
		require.FailNow(s.t, "the complaint")
		require.FailNow(s.t, "never reached")
	}})
	require.True(t, cleaned)
	require.Contains(t, said, "the complaint")
	require.NotContains(t, said, "never reached", "it stops at the first failure")
}
