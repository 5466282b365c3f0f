package inbox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

func TestEditedMessageIsHandledWithAllElseAsItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := ordered(newID(t), "o1")
	m.Payload = []byte("wrong")
	other := ordered(newID(t), "o2")
	other.Payload = []byte("other")
	keys := w.kill(w.box, "billing", m, other)
	elsewhere := w.kill(w.box, "shipping", m)[0]
	edit := operator.By{Actor: "ann", Reason: "the total was wrong"}
	require.ErrorContains(t, w.operator().Dead().ReplayEdited(t.Context(), keys[0], []byte("new"), operator.By{Actor: "ann"}), "By.Reason is empty")
	require.ErrorContains(t, w.operator().Dead().ReplayEdited(t.Context(), keys[0], nil, edit), "the payload is empty")

	small := newBox(w.units, &inbox.Config{MaxPayload: 2})
	require.ErrorContains(t, small.Dead().ReplayEdited(t.Context(), keys[0], []byte("new"), edit), "the payload has 3 bytes, and Config.MaxPayload is 2")
	require.ErrorContains(t, w.operator().Dead().ReplayEdited(t.Context(), keys[0], make([]byte, 1<<20+1), edit), "Config.MaxPayload is 1048576")

	box := w.hasty(nil)
	var got *messaging.Message
	box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		got = m
		return w.effect(ctx, m)
	}))
	stop := runParked(t, box)
	require.NoError(t, w.operator().Dead().ReplayEdited(t.Context(), keys[0], []byte("new"), edit))
	w.awaitEffects(1)
	stop()
	require.Equal(t, []byte("new"), got.Payload)
	require.Equal(t, []string{m.ID, m.Type, m.Topic, m.RoutingKey}, []string{got.ID, got.Type, got.Topic, got.RoutingKey})
	for key, payload := range map[operator.MessageRef]string{keys[1]: "other", elsewhere: "wrong"} {
		d, err := w.operator().Dead().Show(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, payload, string(d.Envelope.Payload), "another dead letter, and that of another consumer, are as they were")
	}
	entries, err := w.operator().Audit(t.Context(), operator.AuditFilter{EventID: keys[0].MessageKey}, nil, 0)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, []string{"ann", "edit", "the total was wrong"}, []string{entries[0].Actor, string(entries[0].Action), entries[0].Reason})
	require.ErrorIs(t, w.operator().Dead().ReplayEdited(t.Context(), keys[0], []byte("newer"), edit), operator.ErrNotDead)
}
