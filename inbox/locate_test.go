package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/step"
)

// A message has one place at each consumer, although several tables hold rows of it.
func TestLocateTellsOnePlacePerConsumer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered(newID(t), "o1")
	w.kill(w.box, "dead", m)
	fine := w.box.Wrap("fine", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil }), inbox.WithoutUnit())
	require.NoError(t, fine.Handle(t.Context(), m))
	w.exec(`INSERT INTO inbox_attempt (message_key, consumer, tenant_id, source, attempts, error_message)
		SELECT message_key, c, tenant_id, source, 2, 'away' FROM inbox_dead, unnest(ARRAY['dead', 'tried', 'fine']) c`)
	list, err := w.box.State().Locate(t.Context(), m.ID)
	require.NoError(t, err)
	got := map[string]state.Place{}
	for _, l := range list {
		got[l.Key.Consumer] = l.Place
		require.NotZero(t, l.At)
		require.Equal(t, m.ID, l.Key.MessageKey)
	}
	require.Equal(t, map[string]state.Place{"dead": state.PlaceDead, "fine": state.PlaceSettled, "tried": state.PlaceTried}, got)
	require.Equal(t, []any{"away", 2}, []any{list[2].Error, list[2].Attempts})
	_, err = w.box.State().Locate(t.Context(), "order-7")
	require.ErrorContains(t, err, `the message key "order-7" is not a UUID`)
}

// The steps of a message that are done are shown while the message fails.
func TestLocateTellsTheStepsThatAreDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered(newID(t), "o1")
	h := w.hasty(nil).WrapLeased("leased", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		if _, err := step.Call(ctx, "charge", func(context.Context, string) (string, error) { return "secret", nil }); err != nil {
			return err
		}
		return messaging.Permanent(errors.New("no"))
	}))
	require.NoError(t, h.Handle(t.Context(), m))
	list, err := w.box.State().Locate(t.Context(), m.ID)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, state.PlaceDead, list[0].Place)
	require.Len(t, list[0].Steps, 1)
	require.Equal(t, "charge", list[0].Steps[0].Name)
}
