package command

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/dead"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// A dead letter of either box says whether the later ones of its key wait for it, and they do so if and only if it says so.
func TestLettersSayWhetherTheirKeyWaits(t *testing.T) {
	t.Parallel()
	lost := messaging.Permanent(errors.New("no schema"))
	goOn := func(c *config.Config) {
		c.Projector.ContinueAfterDead, c.Inbox.ContinueAfterDead = []string{"order"}, true
	}
	refused := func(s *shop) { s.FailNextPublish(lost); s.place("o-1") }
	expired := func(s *shop) { s.add(event.WithOrderingKey("o-1"), event.WithExpiry(time.Now().Add(-time.Minute))) }
	givenUp := func(s *shop) { s.broken.Store(true); s.place("o-1") }
	for name, c := range map[string]struct {
		configure func(*config.Config)
		die       func(*shop)
		holds     bool
	}{
		"outbox, refused for good":           {die: refused, holds: true},
		"outbox, its keys go on":             {configure: goOn, die: refused},
		"outbox, without a key":              {die: func(s *shop) { s.FailNextPublish(lost); s.add() }},
		"outbox, expired":                    {die: expired},
		"outbox, expired, and expiry blocks": {configure: func(c *config.Config) { c.Projector.BlockExpired = true }, die: expired, holds: true},
		"inbox, given up":                    {die: givenUp, holds: true},
		"inbox, its keys go on":              {configure: goOn, die: givenUp},
		"inbox, without a key":               {die: func(s *shop) { s.broken.Store(true); s.add() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, func(cfg *config.Config) {
				if c.configure != nil {
					c.configure(cfg)
				}
			})
			c.die(s)
			s.DrainFailing()
			s.broken.Store(false)
			s.place("o-1")
			s.Drain()
			require.Equal(t, c.holds, s.billed.Load() == 0, "the next one of the key")

			list := document[[]dead.Letter](t, s.oncebox("dead", "list", "--json"))
			require.Len(t, list, 1)
			shown := document[[]dead.Letter](t, s.oncebox("dead", "show", list[0].ID, "--payload", "--json"))
			found := s.stuck()
			stuck := slices.Collect(maps.Values(found))
			require.Equal(t, []bool{c.holds, c.holds, c.holds}, []bool{list[0].Holds, shown[0].Holds, stuck[0].Holds}, "list, show, stuck")
		})
	}
}

// add announces an order for nobody in particular.
func (s *shop) add(opts ...event.AddOption) {
	s.t.Helper()
	require.NoError(s.t, s.App.UoW.Do(s.t.Context(), func(_ context.Context, u *uow.Unit) error {
		return u.Add("order", orderPlaced{"o-1"}, opts...)
	}))
}
