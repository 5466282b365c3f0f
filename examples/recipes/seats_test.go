package recipes_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/recipes"
	"github.com/oncebox/oncebox/oncetest"
)

// Of 20 requests at once for two of 25 seats, 12 get seats, and each of them has its event.
func TestSeatsAreNotSoldTwice(t *testing.T) {
	kit := oncetest.New(t, func(s oncetest.Setup) (*oncebox.App, error) {
		app, err := oncebox.New(s.DB, s.Broker, s.Config)
		if err != nil {
			return nil, err
		}
		event.Register[recipes.SeatsTaken](app.Registry)
		_, err = s.DB.ExecContext(t.Context(), "CREATE TABLE shows (id text PRIMARY KEY, free int NOT NULL); INSERT INTO shows VALUES ('hamlet', 25)")
		return app, err
	})
	outcomes := make(chan error, 20)
	var group errgroup.Group
	for range cap(outcomes) {
		group.Go(func() error {
			outcomes <- recipes.TakeSeats(t.Context(), kit.App.UoW, "hamlet", 2)
			return nil
		})
	}
	require.NoError(t, group.Wait())
	close(outcomes)
	refused := 0
	for err := range outcomes {
		if err != nil {
			require.ErrorIs(t, err, recipes.ErrSoldOut)
			refused++
		}
	}
	require.Equal(t, 8, refused)
	var free int
	require.NoError(t, kit.DB.NewRaw("SELECT free FROM shows").Scan(t.Context(), &free))
	require.Equal(t, 1, free)
	kit.Drain()
	oncetest.RequireEvents[recipes.SeatsTaken](kit, 12, func(e recipes.SeatsTaken) bool { return e.Seats == 2 })
}
