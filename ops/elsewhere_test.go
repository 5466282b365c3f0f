package ops_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox/state"
)

// A message of another service is not called gone: its outbox is elsewhere. One of this service, whose row is away, is.
func TestLifeOfWhatWasRecordedElsewhere(t *testing.T) {
	s := newService(t)
	s.place("own")
	s.Drain() // so that the consumers have their owner
	_, err := s.DB.ExecContext(t.Context(), "INSERT INTO inbox_consumer (consumer, source) SELECT 'billing', source FROM outbox LIMIT 1 "+
		"ON CONFLICT (consumer) DO UPDATE SET source = excluded.source")
	require.NoError(t, err)
	foreign, own := uuid.Must(uuid.NewV7()).String(), uuid.Must(uuid.NewV7()).String()
	for id, source := range map[string]string{foreign: "'tickets'", own: "(SELECT source FROM outbox LIMIT 1)"} {
		_, err := s.DB.ExecContext(t.Context(), "INSERT INTO inbox (message_key, consumer, tenant_id, source) VALUES (?, 'billing', 'default', "+source+")", id)
		require.NoError(t, err)
	}
	l := s.life(foreign)
	require.True(t, l.Elsewhere)
	require.Equal(t, "tickets", l.Source)
	require.Empty(t, l.Gone)
	require.Equal(t, state.PlaceSettled, l.Consumers[0].Place)
	l = s.life(own)
	require.False(t, l.Elsewhere)
	require.Contains(t, l.Gone, "no longer has the event")
}
