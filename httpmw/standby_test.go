//go:build unix

package httpmw_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// An administrator ends each wait of a refusal for the synchronous standby. The refusal is there for all to see, and a failover may take
// it back: its client is not told.
func TestRefusalThatTheStandbyDoesNotConfirm(t *testing.T) {
	primary := pgtest.Start(t, nil)
	primary.Standby(t)
	s := newServiceOn(t, primary.Migrated(t))
	s.start(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no funds", http.StatusUnprocessableEntity)
	})
	first := s.post("first", "{}")
	require.Equal(t, http.StatusUnprocessableEntity, first.status)

	release := primary.Stall(t)
	answer := make(chan reply, 1)
	go func() { answer <- s.post("k", "{}") }()
	for _, statement := range []string{"INSERT%", "%pg_logical_emit_message%"} {
		await.True(t, func() bool {
			return s.count("SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '"+statement+"'") > 0
		}, "a wait for the standby in %s", statement)
	}
	got := <-answer
	require.Equal(t, 2, s.stored())
	kind, _ := got.problem(t)
	require.Equal(t, "transaction-failed", kind)
	release()
	require.Equal(t, first.body, s.post("k", "{}").body)
}
