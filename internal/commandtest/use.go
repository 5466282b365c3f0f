package commandtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

// Broker is a broker at which a test makes topics.
type Broker interface {
	messaging.Publisher
	messaging.Subscriber
	messaging.Declarer
}

// Use makes a topic with the subscription billing of a service shop, and has a message published, received and settled there.
func Use(t *testing.T, b Broker, topic string) {
	t.Helper()
	s := messaging.Subscription{Topic: topic, Name: "billing", Source: "shop"}
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	require.NoError(t, b.Declare(ctx, []string{topic}, []messaging.Subscription{s}))
	sent := event.Envelope{
		ID: uuid.NewString(), Type: "used", Topic: topic, Source: s.Source, OccurredAt: time.Now(), ContentType: event.ContentTypeJSON, Payload: []byte("{}"),
	}
	require.NoError(t, b.Publish(ctx, []event.Envelope{sent}))
	r, err := b.Subscribe(ctx, s)
	require.NoError(t, err)
	got, err := r.Receive(ctx)
	require.NoError(t, err)
	require.Equal(t, sent.ID, got.ID)
	require.NoError(t, r.Ack(ctx, got))
	require.NoError(t, r.Close())
}

// RequireUse subscribes to a topic of a misspelt name. The doctor reports that nobody publishes to it, and which topic may be meant, until a message has
// been there. Other findings do not matter.
func (p *Program) RequireUse(b Broker) {
	p.t.Helper()
	s := messaging.Subscription{Topic: "ticket", Name: "billing", Source: "shop"}
	require.NoError(p.t, b.Declare(p.t.Context(), []string{"ticket"}, []messaging.Subscription{s}))
	const warning = "warning (broker): topic ticket: as far as the broker knows, nobody has ever published to it, " +
		"so the subscription billing of this service " +
		"gets no message"
	says := func() (found []string) {
		for _, f := range p.Doctor() {
			if strings.Contains(f, "nobody has ever published") {
				found = append(found, f)
			}
		}
		return found
	}
	found := says()
	require.Len(p.t, found, 1)
	require.Contains(p.t, found[0], warning+": nothing, if the first event is still to come")
	Use(p.t, b, "blue.ticket")
	await.True(p.t, func() bool {
		found := says()
		return len(found) == 1 && strings.Contains(found[0], warning+", and there are messages in topic blue.ticket: if")
	},
		"the finding names the topic that is in use")
	Use(p.t, b, "ticket")
	await.True(p.t, func() bool { return len(says()) == 0 }, "no finding")
}
