package command

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/events"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

func TestDelayedEventsAreListedCancelledAndMoved(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	ids := map[string]string{}
	require.NoError(t, s.App.UoW.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		for n, order := range []string{"cancelled", "moved", "kept"} {
			ids[order] = uuid.Must(uuid.NewV7()).String()
			err := u.Add("order", orderPlaced{order}, event.WithAggregate("order", order, 1), event.WithID(ids[order]),
				event.WithNotBefore(time.Now().Add(time.Duration(n+1)*24*time.Hour)))
			if err != nil {
				return err
			}
		}
		return nil
	}))
	list := document[[]events.DelayedEvent](t, s.oncebox("delayed", "list", "--json"))
	require.Len(t, list, 3)
	require.Equal(t, ids["cancelled"], list[0].ID, "the next one first")
	require.Contains(t, s.oncebox("delayed", "list").out, ids["kept"])
	require.Len(t, document[[]events.DelayedEvent](t, s.oncebox("delayed", "list", "--aggregate-id", "kept", "--json")), 1)
	require.Contains(t, s.oncebox("delayed", "list", "--limit", "2").errs, "There are more")

	cancel := []string{"delayed", "cancel", ids["cancelled"], "--by", "ann", "--why", "sold out"}
	require.Equal(t, cli.ExitRefused, s.oncebox(cancel...).code, "nobody answers")
	require.Equal(t, cli.ExitRefused, s.asked("n\n", cancel...).code)
	require.Equal(t, "The event "+ids["cancelled"]+" was cancelled.\n", s.asked("y\n", cancel...).out)
	again := s.oncebox(append(cancel, "--yes")...)
	require.Equal(t, cli.ExitNothing, again.code)
	require.Contains(t, again.errs, "name it with --tenant")

	require.Zero(t, s.oncebox("delayed", "move", ids["moved"], "--to", "0m", "--by", "ann", "--yes").code)
	s.Drain()
	require.EqualValues(t, 1, s.billed.Load(), "its time has come")
	left := document[[]events.DelayedEvent](t, s.oncebox("delayed", "list", "--json"))
	require.Len(t, left, 1)
	require.Equal(t, ids["kept"], left[0].ID)
	entries, err := s.App.Outbox.Audit(t.Context(), operator.AuditFilter{EventID: ids["cancelled"]}, nil, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"ann", "cancel", "sold out"}, []string{entries[0].Actor, string(entries[0].Action), entries[0].Reason})

	for _, args := range [][]string{
		{"cancel", ids["kept"], "--by", "ann"}, {"cancel", ids["kept"], "--why", "x"}, {"move", ids["kept"], "--by", "ann"},
		{"move", ids["kept"], "--by", "ann", "--to", "tomorrow"}, {"cancel"}, {"list", "--limit", "0"},
	} {
		require.Equal(t, cli.ExitUsage, s.oncebox(append([]string{"delayed"}, args...)...).code, args)
	}
}
