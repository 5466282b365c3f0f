package httpmw_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// An answer leaves in one packet with the events and COMMIT, so that events cost a request no round trip.
func TestEventsAnswerAndCommitLeaveTogether(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var sent counted
	s.watch(&sent)
	s.start(s.pay)
	for _, key := range []string{"warm", "up"} {
		require.Equal(t, http.StatusCreated, s.post(key, `{}`).status)
	}
	batches, queries := sent.batches.Load(), sent.queries.Load()
	require.Equal(t, http.StatusCreated, s.post("k", `{}`).status)
	require.EqualValues(t, 2, sent.batches.Load()-batches)
	require.EqualValues(t, 3, sent.queries.Load()-queries, "the handler's: SAVEPOINT, INSERT, RELEASE")
	require.Equal(t, 3, s.emitted())
}
