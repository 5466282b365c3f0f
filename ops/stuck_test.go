package ops_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { oncetest.Main(m) }

type placed struct{ Order string }

func (placed) EventType() string { return "order.placed" }

// The list has at most a given number of things of each kind, the oldest first. A thing without order holds nothing.
func TestStuckIsBounded(t *testing.T) {
	kit := oncetest.New(t, func(s oncetest.Setup) (*oncebox.App, error) {
		app, err := oncebox.New(s.DB, s.Broker, s.Config)
		if err != nil {
			return nil, err
		}
		event.Register[placed](app.Registry)
		app.Consume("order", "billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
			return messaging.Permanent(errors.New("no"))
		}))
		return app, nil
	})
	place := func(n int) {
		require.NoError(t, kit.App.UoW.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
			for i := range n {
				if err := u.Add("order", placed{strconv.Itoa(i)}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	view := ops.New(kit.DB, kit.App.Outbox, kit.App.Inbox, kit.App.Idempotency)
	place(3)
	require.Len(t, kit.DrainFailing(), 3)
	for range 2 { // one after the other: events of two lanes may be published together or not
		kit.FailNextPublish(messaging.Permanent(errors.New("refused for good")))
		place(1)
		kit.DrainFailing()
	}
	all, err := view.Stuck(t.Context(), ops.Filter{}, 0)
	require.NoError(t, err)
	counted := map[ops.Kind]int{}
	for n, s := range all {
		counted[s.Kind]++
		require.False(t, s.Holds, "it has no order: %+v", s)
		if n > 0 {
			require.False(t, s.Since.Before(all[n-1].Since))
		}
	}
	require.Equal(t, map[ops.Kind]int{ops.MessageDead: 3, ops.EventDead: 2}, counted)
	few, err := view.Stuck(t.Context(), ops.Filter{}, 1)
	require.NoError(t, err)
	require.Len(t, few, 2)
}

// A filter selects by tenant, topic and consumer, also where there is no index for it.
func TestStuckBelongsToTheFilter(t *testing.T) {
	s := newService(t)
	s.fails = errors.New("away")
	s.place("message")
	s.DrainFailing()
	s.FailNextPublish(errors.New("refused"))
	s.place("event")
	s.DrainFailing()
	s.FailNextPublish(messaging.Permanent(errors.New("no schema")))
	s.place("dead event")
	s.DrainFailing()
	s.fails = messaging.Permanent(errors.New("unreadable"))
	s.place("dead message")
	s.DrainFailing()
	for _, test := range []struct {
		filter ops.Filter
		want   []ops.Kind
	}{
		{ops.Filter{}, []ops.Kind{ops.EventDead, ops.EventFailing, ops.MessageDead, ops.MessageFailing}},
		{ops.Filter{Tenant: "default", Topic: "order"}, []ops.Kind{ops.EventDead, ops.EventFailing, ops.MessageDead, ops.MessageFailing}},
		{ops.Filter{Consumer: "billing"}, []ops.Kind{ops.MessageDead, ops.MessageFailing}},
		{ops.Filter{Consumer: "shipping"}, nil},
		{ops.Filter{Topic: "invoice"}, nil},
		{ops.Filter{Tenant: "acme"}, nil},
	} {
		list, err := s.Stuck(t.Context(), test.filter, 0)
		require.NoError(t, err)
		var got []ops.Kind
		for _, f := range list {
			got = append(got, f.Kind)
			require.Equal(t, f.Kind == ops.EventFailing, len(f.Kind.Actions()) == 0, f.Kind)
		}
		require.ElementsMatch(t, test.want, got, "%+v", test.filter)
	}
}

// Events that should have left are stuck: without a relay, and with one that does not get on. What waits for its time, or for less than a minute,
// is not.
func TestEventsThatShouldHaveLeft(t *testing.T) {
	s := newService(t)
	exec := func(statement string) {
		t.Helper()
		_, err := s.DB.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	parts := func() (list []ops.Stuck) {
		t.Helper()
		all, err := s.Stuck(t.Context(), ops.Filter{}, 0)
		require.NoError(t, err)
		for _, found := range all {
			require.WithinDuration(t, time.Now().Add(-5*time.Minute), found.Since, time.Minute)
			list = append(list, ops.Stuck{Kind: found.Kind, Relay: found.Relay})
		}
		return list
	}
	s.place("old")
	exec("UPDATE outbox SET created_at = now() - interval '5 minutes'")
	s.place("new")
	s.place("for tomorrow", event.WithNotBefore(time.Now().Add(24*time.Hour)))
	exec("UPDATE outbox SET created_at = now() - interval '1 hour' WHERE not_before IS NOT NULL")
	require.Equal(t, []ops.Stuck{{Kind: ops.RelayMissing}}, parts(), "no relay ever had a lane")
	exec("UPDATE outbox_lane SET owner = 'vanished', lease_until = now() - interval '1 second'")
	require.Equal(t, []ops.Stuck{{Kind: ops.RelayMissing, Relay: "vanished"}}, parts())
	exec("UPDATE outbox_lane SET owner = 'slow', lease_until = now() + interval '1 hour'")
	require.Equal(t, []ops.Stuck{{Kind: ops.RelayLate, Relay: "slow"}}, parts())
	relay := lanedb.Of(s.App.Outbox.Handle())
	_, err := relay.Leases.Heartbeat(t.Context(), "slow", 0, time.Hour)
	require.NoError(t, err)
	why := func(ago time.Duration) string {
		t.Helper()
		require.NoError(t, relay.Leases.NoteFailure(t.Context(), "slow", "refused\x00", "", ago, ago))
		all, err := s.Stuck(t.Context(), ops.Filter{}, 0)
		require.NoError(t, err)
		return all[0].Error
	}
	require.Equal(t, "refused\uFFFD", why(time.Minute))
	require.Empty(t, why(10*time.Minute), "an outage that was over before")
	exec("UPDATE outbox SET created_at = now() WHERE not_before IS NULL")
	require.Empty(t, parts())
	exec(`WITH due AS (DELETE FROM outbox WHERE not_before IS NOT NULL RETURNING *) INSERT INTO outbox_held SELECT *, now() - interval '5 minutes' FROM due`)
	require.Equal(t, []ops.Stuck{{Kind: ops.RelayLate, Relay: "slow"}}, parts(), "its time has come")
}
