package ops_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/seek"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// placeOf records an event of an aggregate and a request, and returns its id.
func (s *service) placeOf(aggregate string, m event.Metadata, opts ...event.AddOption) (id string) {
	s.t.Helper()
	require.NoError(s.t, s.App.UoW.Do(event.WithMetadata(s.t.Context(), m), func(_ context.Context, u *uow.Unit) error {
		return u.Add("order", placed{aggregate}, append(opts, event.WithAggregate("order", aggregate, 1))...)
	}))
	require.NoError(s.t, s.DB.NewRaw("SELECT id FROM outbox ORDER BY seq DESC LIMIT 1").Scan(s.t.Context(), &id))
	return id
}

// found are the ids that a search finds, each with the property that fits.
func (s *service) found(text string) (list []string) {
	s.t.Helper()
	f, err := s.Find(s.t.Context(), text, time.Time{}, 0)
	require.NoError(s.t, err)
	require.False(s.t, f.More)
	require.Zero(s.t, f.Back, "all was searched")
	for _, found := range f.List {
		list = append(list, found.By+" "+found.ID)
	}
	return list
}

// An event is found by each property that an operator may know, wherever it is.
func TestAnEventIsFoundByWhatIsKnownOfIt(t *testing.T) {
	s := newService(t)
	cause := uuid.Must(uuid.NewV7()).String()
	m := event.Metadata{event.CorrelationID: "req-81f3", event.CausationID: cause}
	first := s.placeOf("8eca5a5d", m)
	find := func() {
		t.Helper()
		for text, by := range map[string]string{
			first: "id", strings.ToUpper(first): "id", "8eca5a5d": "aggregate id", "8eca": "aggregate id", "default|order|8eca5a5d": "ordering key",
			"req-81f3": "correlation id", "req-8": "correlation id", cause: "causation id", cause[:20]: "causation id", "\treq-81f3": "correlation id",
		} {
			require.Equal(t, []string{by + " " + first}, s.found(text), text)
		}
		for _, text := range []string{"8eca5a5e", "req-81f3 ", "eca5", "req-81f33", "correlation_id", `"`, "%", "_"} {
			if strings.TrimSpace(text) == "req-81f3" || len(text) < 2 {
				continue
			}
			require.Empty(t, s.found(text), text)
		}
	}
	find() // waits
	s.Drain()
	find() // is published, and handled by two consumers
	second := s.placeOf("77", m)
	require.ElementsMatch(t, []string{"correlation id " + first, "correlation id " + second}, s.found("req-81f3"))
	require.ElementsMatch(t, []string{"id " + first, "id " + second}, s.found(first[:6]), "ids of the same hours")
	require.Len(t, s.found("default"), 2, "the tenant")
	one, err := s.Find(t.Context(), "req-81f3", time.Time{}, 1)
	require.NoError(t, err)
	require.True(t, one.More)
	require.Equal(t, second, one.List[0].ID, "the newest")
	require.Equal(t, "NEW", one.List[0].Where)

	explicit := s.placeOf("78", nil, event.WithOrderingKey("sofa"))
	require.Equal(t, []string{"ordering key " + explicit}, s.found("sofa"))
	for _, text := range []string{"", "x", strings.Repeat("x", 300), "a\x00b"} {
		_, err := s.Find(t.Context(), text, time.Time{}, 0)
		require.ErrorIs(t, err, seek.ErrText, text)
	}
}

// In the database of another service, a message is found by all properties while it waits or is dead. When it was handled only its id is kept.
func TestAMessageIsFoundAtItsConsumer(t *testing.T) {
	s := newService(t)
	s.fails = messaging.Permanent(errors.New("unreadable"))
	m := messaging.Message{}
	m.ID, m.Source, m.Type, m.Topic, m.TenantID, m.Payload = "order-7", "partner", "order.placed", "order", "acme", []byte(`{}`)
	m.AggregateType, m.AggregateID, m.Metadata = "order", "o-7", event.Metadata{event.CorrelationID: "req-81f3"}
	handler := s.App.Inbox.Wrap("foreign", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return s.fails }))
	require.NoError(t, handler.Handle(t.Context(), &m))
	for text, by := range map[string]string{"order-7": "id", "o-7": "aggregate id", "req-81f3": "correlation id", "acme": "tenant"} {
		require.Equal(t, []string{by + " order-7"}, s.found(text), text)
	}
	key := s.life("order-7", "partner").MessageKey
	require.Equal(t, []string{"id order-7"}, s.found(key))

	s.fails = nil
	m.ID, m.AggregateID, m.Metadata = uuid.Must(uuid.NewV7()).String(), "o-8", nil
	require.NoError(t, handler.Handle(t.Context(), &m))
	require.Equal(t, []string{"id " + m.ID}, s.found(m.ID))
	require.Equal(t, []string{"id " + m.ID}, s.found(m.ID[:13]))
	require.Equal(t, []string{"correlation id order-7"}, s.found("req-81f3"))
	f, err := s.Find(t.Context(), m.ID[:13], time.Time{}, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"settled", "partner", "acme"}, []string{f.List[0].Where, f.List[0].Source, f.List[0].Tenant})
}
