package oncetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/uow"
)

// alone is a service without a broker that writes a row for each order. fail is what its handler returns for its nth call.
func alone(t testing.TB, fail func(try int) error) *oncetest.Kit {
	t.Helper()
	n := 0
	return oncetest.New(t, func(setup oncetest.Setup) (*oncebox.App, error) {
		app, err := oncebox.New(setup.DB, nil, setup.Config)
		if err != nil {
			return nil, err
		}
		event.Register[Placed](app.Registry)
		event.Register[Invoiced](app.Registry)
		router := messaging.NewRouter(app.Registry)
		messaging.Handle(router, func(ctx context.Context, e Placed) error {
			n++
			u := uow.MustFromContext(ctx)
			_, err := u.DB().NewRaw("INSERT INTO invoices VALUES (?)", e.ID).Exec(ctx)
			return errors.Join(err, u.Add("invoice", Invoiced(e)), fail(n))
		})
		app.Consume("order", "billing", router)
		_, err = setup.DB.Exec("CREATE TABLE IF NOT EXISTS invoices (id text)")
		return app, err
	})
}

func placeAlone(t testing.TB, k *oncetest.Kit) {
	t.Helper()
	require.NoError(t, k.App.UoW.Do(t.Context(), func(_ context.Context, u *uow.Unit) error { return u.Add("order", Placed{"a"}) }))
}

func requireOneHandled(t testing.TB, k *oncetest.Kit) {
	t.Helper()
	var n int
	require.NoError(t, k.DB.NewRaw("SELECT count(*) FROM invoices").Scan(t.Context(), &n))
	require.Equal(t, 1, n)
	oncetest.RequireEvents[Invoiced](k, 1)
}

func TestWithoutABroker(t *testing.T) {
	t.Parallel()
	k := alone(t, func(try int) error {
		if try == 1 {
			return errors.New("no ink")
		}
		return nil
	})
	placeAlone(t, k)
	failures := k.DrainFailing()
	require.Len(t, failures, 1)
	require.Equal(t, "billing", failures[0].Consumer)
	oncetest.RequireNoEvent[Invoiced](k)
	k.Advance(time.Hour)
	k.Drain()
	requireOneHandled(t, k)
}

func TestCrashWithoutABroker(t *testing.T) {
	t.Parallel()
	for _, point := range []oncetest.Point{oncetest.BeforeCommit, oncetest.AfterCommit} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			k := alone(t, never)
			placeAlone(t, k)
			k.CrashAt(point)
			k.CrashAt(point) // the first is where the relay stores the message, the second where it is handled
			k.Drain()
			requireOneHandled(t, k)
		})
	}
}
