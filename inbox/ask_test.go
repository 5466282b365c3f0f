package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
)

// away is a broker that does not answer.
type away struct{ asked int }

func (a *away) ReadSubscription(_ context.Context, _, name string) (messaging.SubscriptionState, error) {
	a.asked++
	return messaging.SubscriptionState{}, errors.New("ask for " + name + ": no answer")
}

// A broker that is silent is asked once, and its error is that of the subscription that was asked for.
func TestErrorOfABrokerIsOfWhatItWasAsked(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"billing", "mailer"} {
		_, err := w.db.ExecContext(t.Context(), "INSERT INTO inbox_consumer (consumer) VALUES (?)", name)
		require.NoError(t, err)
		_, err = w.db.ExecContext(t.Context(), "INSERT INTO inbox_topic (topic, consumer, subscribed) VALUES ('order', ?, true)", name)
		require.NoError(t, err)
	}
	broker := &away{}
	list, err := w.operator().State().ConsumersAt(t.Context(), broker)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, 1, broker.asked)
	require.Equal(t, "ask for billing: no answer", list[0].Topics[0].Waiting.Error)
	require.Equal(t, "the broker has not answered for another subscription", list[1].Topics[0].Waiting.Error)
}
