package messagingtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/watched"
)

// watch runs a case and returns its complaint, "" if it passed.
func watch(t *testing.T, h Harness, c testCase) string {
	t.Helper()
	return watched.Run(t.Context(), func(by *watched.T) { c.run(h.withDefaults().open(t, by, c.kind)) })
}

func TestRecorder(t *testing.T) {
	var order []int
	said := watch(t, sound(nil), testCase{run: func(s *session) {
		s.t.Cleanup(func() { order = append(order, 2) })
		s.t.Cleanup(func() {
			order = append(order, 1)
			require.NoError(s.t, s.t.Context().Err(), "first complaint")
		})
		require.FailNow(s.t, "second complaint")
		order = append(order, 0)
	}})
	require.Equal(t, []int{1, 2}, order, "it stops at the first failure, and cleans up from behind")
	require.Contains(t, said, "first complaint")
	require.Contains(t, said, "second complaint")
}
