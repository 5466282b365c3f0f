package httpmw_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
)

// A request whose answer was erased is not executed again.
func TestErasedAnswer(t *testing.T) {
	t.Parallel()
	for mode, lease := range map[string]*httpmw.LeaseConfig{"atomic": nil, "lease": {}} {
		t.Run(mode, func(t *testing.T) {
			s := newService(t)
			s.cfg.Lease = lease
			s.start(s.pay)
			require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
			n, err := s.keys.Erase(t.Context(), s.db.DB, "", "u1")
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			got := s.post("k", "{}")
			require.Equal(t, http.StatusGone, got.status)
			kind, retryable := got.problem(t)
			require.Equal(t, "idempotency-key-not-replayable", kind)
			require.False(t, retryable)
			require.Equal(t, http.StatusUnprocessableEntity, s.post("k", "[]").status)
			require.Equal(t, 1, s.payments())
		})
	}
}
