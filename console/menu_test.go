package console_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The menu says how much is behind its links, on every page. What has nothing has no number.
func TestTheMenuHasNumbers(t *testing.T) {
	s := newShop(t)
	b := s.serve(s.config())
	require.Contains(t, b.page("audit").text(), "Overview Stuck Failures Dead letters Delayed Idempotency keys Tenants Consumers Processes Audit")
	s.killedEvents(2)
	s.killedMessages(1)
	s.unknownStep("k-1")
	s.remind("o-2", time.Now().Add(time.Hour))
	s.failingMessage("o-1")
	for _, page := range []string{"", "audit", "search", "stuck", "dead", "confirm?action=replay", "event?id=" + aUUID} {
		require.Contains(t, b.get(page).text(), "Stuck 5 Failures Dead letters 3 Delayed 1 Idempotency keys 1 Tenants Consumers Processes Audit", page)
	}
	require.Contains(t, b.page("stuck").text(), "5 things are stuck, for 4 reasons: 1 ordering key fails, 3 dead letters, 1 request is refused. "+
		"A row is a reason; the menu counts the things.")

	_, err := s.DB.ExecContext(t.Context(), deadMessages, 1200)
	require.NoError(t, err)
	require.Contains(t, b.page("audit").text(), "Dead letters 1 000+")
	require.Contains(t, b.page("dead?box=inbox").text(), "1 to 50 of 1 000+")
	require.Contains(t, b.page("dead?box=inbox&type=none").text(), "No dead letter matches.")
}
