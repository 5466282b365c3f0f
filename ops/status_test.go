package ops_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/ops"
)

// The status counts waiting and dead rows over all tables, and with a filter the selected ones.
func TestStatusCountsWhatTheFilterSelects(t *testing.T) {
	s := newService(t)
	s.fails = errors.New("away")
	s.place("parked")
	s.DrainFailing()
	s.FailNextPublish(errors.New("refused"))
	s.place("failing event")
	s.DrainFailing()
	s.FailNextPublish(messaging.Permanent(errors.New("no schema")))
	s.place("dead event")
	s.DrainFailing()
	s.fails = messaging.Permanent(errors.New("unreadable"))
	s.place("dead message")
	s.DrainFailing()
	s.place("new")
	_, err := lanedb.Of(s.App.Outbox.Handle()).Leases.Heartbeat(t.Context(), "me", 0, time.Hour)
	require.NoError(t, err)

	type seen struct {
		fresh, held, dead, failed    int64
		shares, parked, deadMessages int
	}
	for filter, want := range map[ops.Filter]seen{
		{}:                                  {1, 1, 1, 1, 1, 1, 1},
		{Tenant: "default", Topic: "order"}: {1, 1, 1, 0, 1, 1, 1},
		{Topic: "invoice"}:                  {},
		{Tenant: "acme"}:                    {},
		{Consumer: "billing"}:               {1, 1, 1, 1, 1, 1, 1},
		{Consumer: "shipping"}:              {1, 1, 1, 1, 1, 0, 0},
	} {
		st, err := s.Status(t.Context(), filter)
		require.NoError(t, err)
		got := seen{st.Outbox.New, st.Outbox.Held, st.Outbox.Dead, st.Outbox.Failed, len(st.Outbox.Shares), 0, 0}
		for _, c := range st.Consumers {
			require.True(t, filter.Consumer == "" || filter.Consumer == c.Consumer)
			got.parked, got.deadMessages = got.parked+c.Stats.Parked, got.deadMessages+c.Stats.DeadLetters
		}
		require.Equal(t, want, got, "%+v", filter)
		require.Equal(t, 64, st.Outbox.Lanes)
		require.Equal(t, "me", st.Projectors[0].Owner)
		require.False(t, st.Traffic.At.IsZero())
	}
	st, err := s.Status(t.Context(), ops.Filter{})
	require.NoError(t, err)
	require.Positive(t, st.Outbox.OldestAge)
	require.Equal(t, []string{"billing", "shipping"}, []string{st.Consumers[0].Consumer, st.Consumers[1].Consumer})
	require.True(t, st.Consumers[0].Run.Runs)
}
