package ops_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/uow"
)

const traceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// service publishes orders to two consumers. The handler of billing returns what fails says.
type service struct {
	*oncetest.Kit
	*ops.View
	t     *testing.T
	fails error
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{t: t}
	s.Kit = oncetest.New(t, func(setup oncetest.Setup) (*oncebox.App, error) {
		app, err := oncebox.New(setup.DB, setup.Broker, setup.Config)
		if err != nil {
			return nil, err
		}
		event.Register[placed](app.Registry)
		app.Consume("order", "billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return s.fails }))
		app.Consume("order", "shipping", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil }))
		return app, nil
	})
	s.View = ops.New(s.DB, s.App.Outbox, s.App.Inbox, s.App.Idempotency)
	return s
}

// place records an order under the key and returns the event's id.
func (s *service) place(key string, opts ...event.AddOption) (id string) {
	s.t.Helper()
	ctx := event.WithMetadata(s.t.Context(), event.Metadata{event.TraceParent: traceParent})
	require.NoError(s.t, s.App.UoW.Do(ctx, func(_ context.Context, u *uow.Unit) error {
		return u.Add("order", placed{key}, append(opts, event.WithOrderingKey(key))...)
	}))
	require.NoError(s.t, s.DB.NewRaw("SELECT id FROM outbox ORDER BY seq DESC LIMIT 1").Scan(s.t.Context(), &id))
	return id
}

func (s *service) life(id string, sources ...string) ops.Life {
	s.t.Helper()
	list, err := s.Life(s.t.Context(), id, sources...)
	require.NoError(s.t, err)
	require.Len(s.t, list, 1)
	return list[0]
}

// happened are the moments of a life in their order, with the consumer.
func happened(l ops.Life) (list []string) {
	for n, m := range l.History {
		if n > 0 && !m.At.IsZero() && m.At.Before(l.History[n-1].At) {
			list = append(list, "out of order:")
		}
		text := string(m.What)
		if m.Action != "" {
			text = string(m.Action)
		}
		if m.Consumer != "" {
			text += " " + m.Consumer
		}
		list = append(list, text)
	}
	return list
}

// An event is followed from its commit over a refusal, two consumers and an operator's decisions to the end.
func TestLifeOfAnEvent(t *testing.T) {
	s := newService(t)
	id := s.place("a")
	l := s.life(id)
	require.Equal(t, []string{"recorded", "waiting"}, happened(l))
	require.Equal(t, []string{id, id, "order.placed", "order", "default", "default|a", "0af7651916cd43dd8448eb211c80319c"},
		[]string{l.ID, l.MessageKey, l.Type, l.Topic, l.Tenant, l.Key, l.TraceID})
	require.NotEmpty(t, l.Source)
	require.Positive(t, l.Sequence)
	require.Empty(t, l.Gone)

	s.FailNextPublish(messaging.Permanent(errors.New("no schema")))
	behind := s.place("a")
	s.DrainFailing()
	l = s.life(id)
	require.Equal(t, []string{"recorded", "dead"}, happened(l))
	require.Equal(t, "no schema", l.History[1].Error)
	require.Equal(t, state.StatusDead, l.Outbox[0].Status)
	second := s.life(behind)
	require.Equal(t, []string{"recorded", "waiting"}, happened(second))
	require.Equal(t, id, second.History[1].Behind, "it waits for the dead letter of its key")

	require.NoError(t, s.App.Outbox.Dead().Replay(t.Context(), id, operator.By{Actor: "ann", Reason: "registered"}))
	s.fails = errors.New("bank away")
	s.DrainFailing()
	l = s.life(id)
	require.Equal(t, []string{"recorded", "dead", "replay"}, happened(l)[:3])
	require.True(t, l.History[1].Before, "the row of the dead letter is gone, the decision about it is not")
	require.ElementsMatch(t, []string{"published", "handled shipping", "failing billing"}, happened(l)[3:])
	failing := l.History[slices.IndexFunc(l.History, func(m ops.Moment) bool { return m.What == ops.Failing })]
	require.Equal(t, "bank away", failing.Error)
	require.NotZero(t, failing.Until)
	require.Positive(t, failing.Attempts)
	second = s.life(behind)
	require.Contains(t, happened(second), "waiting billing")
	require.Equal(t, id, second.Consumers[0].Behind)

	key := l.Consumers[0].Key
	require.NoError(t, s.App.Inbox.Parked().GiveUp(t.Context(), key, operator.By{Actor: "bob", Reason: "closed"}))
	require.Contains(t, happened(s.life(id)), "dead billing")
	require.Equal(t, id, s.life(behind).Consumers[0].Behind, "the dead letter holds the key")
	require.NoError(t, s.App.Inbox.Dead().Discard(t.Context(), key, operator.By{Actor: "bob", Reason: "closed"}))
	s.fails = nil
	s.Drain()
	l = s.life(id)
	require.Equal(t, []string{"recorded", "dead", "replay"}, happened(l)[:3])
	require.ElementsMatch(t, []string{"published", "handled shipping", "give_up billing", "dead billing", "discard billing"}, happened(l)[3:])
	require.Empty(t, l.Gone)
}

// A message that was edited or retried was not handled when it came.
func TestALifeShowsWhenAnEditedMessageWasHandled(t *testing.T) {
	s := newService(t)
	s.fails = messaging.Permanent(errors.New("the amount is no number"))
	id := s.place("a")
	s.DrainFailing()
	by := operator.By{Actor: "ann", Reason: "a number now"}
	key := s.life(id).Consumers[0].Key
	require.NoError(t, s.App.Inbox.Dead().ReplayEdited(t.Context(), key, []byte(`{"key":"a"}`), by))
	s.fails = nil
	s.Drain()
	l := s.life(id)
	require.Subset(t, happened(l), []string{"received billing", "handled shipping"})
	require.Equal(t, []string{"edit billing", "handled billing"}, happened(l)[len(l.History)-2:])
	handled := l.History[len(l.History)-1]
	require.True(t, handled.After)
	require.Equal(t, l.History[len(l.History)-2].At, handled.At)
}

// A delayed event shows until when it waits. A cancelled event shows who did it, and an event whose rows the retention has removed shows that they are gone.
func TestLifeAfterTheRowsAreGone(t *testing.T) {
	s := newService(t)
	soon := time.Now().Add(time.Hour)
	require.NoError(t, s.App.UoW.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		return u.Add("order", placed{"later"}, event.WithNotBefore(soon))
	}))
	var delayed string
	require.NoError(t, s.DB.NewRaw("SELECT id FROM outbox").Scan(t.Context(), &delayed))
	l := s.life(delayed)
	require.Equal(t, []string{"recorded", "delayed"}, happened(l))
	require.WithinDuration(t, soon, l.History[1].Until, time.Millisecond)
	require.NoError(t, s.App.Outbox.Delayed().CancelByHand(t.Context(), delayed, operator.By{Actor: "ann", Reason: "sold out"}))
	l = s.life(delayed)
	require.Equal(t, []string{"cancel"}, happened(l))
	require.Equal(t, "It was deleted before it was published", l.Gone)

	id := s.place("a")
	s.Drain()
	require.ElementsMatch(t, []string{"recorded", "published", "handled billing", "handled shipping"}, happened(s.life(id)))
	_, err := s.DB.ExecContext(t.Context(), "DELETE FROM outbox")
	require.NoError(t, err)
	l = s.life(id)
	require.ElementsMatch(t, []string{"handled billing", "handled shipping"}, happened(l))
	require.Contains(t, l.Gone, "no longer has the event")
	require.Contains(t, l.Gone, "published events are kept for 1 day")
	_, err = s.DB.ExecContext(t.Context(), "DELETE FROM inbox")
	require.NoError(t, err)
	_, err = s.Life(t.Context(), id)
	require.ErrorIs(t, err, ops.ErrUnknown)
	require.ErrorContains(t, err, "the entries of handled messages are kept for 10 days")
	_, err = s.Life(t.Context(), "order-7")
	require.ErrorIs(t, err, ops.ErrUnknown)
	require.ErrorContains(t, err, "give the source")
}

// A message of another system, whose id is no UUID, is found with its source, and by its message key.
func TestLifeOfAForeignMessage(t *testing.T) {
	s := newService(t)
	s.fails = messaging.Permanent(errors.New("unreadable"))
	m := messaging.Message{}
	m.ID, m.Source, m.Type, m.Topic, m.TenantID, m.Payload = "order-7", "partner", "order.placed", "order", "acme", []byte(`{}`)
	handler := s.App.Inbox.Wrap("foreign", messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return s.fails }))
	require.NoError(t, handler.Handle(t.Context(), &m))
	l := s.life("order-7", "nobody", "partner")
	require.Equal(t, []string{"dead foreign"}, happened(l))
	require.Equal(t, []string{"acme", "partner", "order-7"}, []string{l.Tenant, l.Source, l.ID})
	require.True(t, l.Elsewhere, "the outbox of partner has its life until there")
	require.Equal(t, l, s.life(l.MessageKey))
}
