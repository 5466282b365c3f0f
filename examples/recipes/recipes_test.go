package recipes_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/recipes"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { oncetest.Main(m) }

const tables = `
CREATE TABLE IF NOT EXISTS wallets (id text PRIMARY KEY, cents bigint NOT NULL, version bigint NOT NULL);
CREATE TABLE IF NOT EXISTS statement (wallet text NOT NULL, cents bigint NOT NULL)`

// renamed is an event that the statement ignores.
type renamed struct{}

func (renamed) EventType() string { return "wallet.renamed" }

func newKit(t *testing.T) *oncetest.Kit {
	t.Helper()
	return oncetest.New(t, func(s oncetest.Setup) (*oncebox.App, error) {
		app, err := oncebox.New(s.DB, s.Broker, s.Config)
		if err != nil {
			return nil, err
		}
		event.Register[recipes.Deposited](app.Registry)
		event.Register[recipes.Withdrawn](app.Registry)
		event.Register[recipes.WalletForgotten](app.Registry)
		event.Register[renamed](app.Registry)
		recipes.ConsumeDeposits(app)
		_, err = s.DB.ExecContext(t.Context(), tables)
		return app, err
	})
}

func within(t *testing.T, kit *oncetest.Kit, fn func(ctx context.Context, u *uow.Unit) error) {
	t.Helper()
	require.NoError(t, kit.App.UoW.Do(t.Context(), fn))
}

func TestEachDeadLetterIsPosted(t *testing.T) {
	var posted []string
	chat := errors.New("the chat is away")
	kit := oncetest.New(t, func(s oncetest.Setup) (*oncebox.App, error) {
		app, err := recipes.NewAlarmed(s.DB, s.Broker, s.Config)
		if err != nil {
			return nil, err
		}
		event.Register[renamed](app.Registry)
		event.Register[recipes.GivenUp](app.Registry)
		router := messaging.NewRouter(app.Registry)
		messaging.Handle(router, func(context.Context, renamed) error { return messaging.Permanent(errors.New("no such wallet")) })
		app.Consume("wallet", "statement", router)
		recipes.PostAlarms(app, func(_ context.Context, text string) error {
			if chat != nil {
				return chat
			}
			posted = append(posted, text)
			return nil
		})
		return app, nil
	})
	add := func(id string) {
		within(t, kit, func(_ context.Context, u *uow.Unit) error { return u.Add("wallet", renamed{}, event.WithID(id)) })
	}
	add("01a20b73-3585-7772-aaf6-16c3d88926ee")
	require.Len(t, kit.DrainFailing(), 2, "the message, and its announcement while the chat is away")
	chat = nil
	kit.Advance(time.Hour)
	kit.DrainFailing()
	kit.FailNextPublish(messaging.Permanent(errors.New("too large")))
	add("01a20b73-358d-7180-a1ca-9a8d19432886")
	kit.DrainFailing()
	require.Equal(t, []string{
		"wallet.renamed 01a20b73-3585-7772-aaf6-16c3d88926ee was given up: no such wallet",
		"wallet.renamed 01a20b73-358d-7180-a1ca-9a8d19432886 was given up: too large",
	}, posted)
}

func TestManyDepositsAtOnceAllSucceed(t *testing.T) {
	kit := newKit(t)
	within(t, kit, func(ctx context.Context, u *uow.Unit) error {
		w := &recipes.Wallet{ID: "w"}
		w.Deposit(1)
		return u.Save(ctx, w)
	})
	var many errgroup.Group
	many.SetLimit(10) // connections
	for range 40 {
		many.Go(func() error { return recipes.DepositInto(t.Context(), kit.App.UoW, "w", 1) })
	}
	require.NoError(t, many.Wait())
	within(t, kit, func(_ context.Context, u *uow.Unit) error { return u.Add("wallet", renamed{}) })
	kit.Drain()
	var cents, lines int
	require.NoError(t, kit.DB.NewRaw("SELECT cents, (SELECT count(*) FROM statement) FROM wallets").Scan(t.Context(), &cents, &lines))
	require.Equal(t, []int{41, 41}, []int{cents, lines})
}

func TestWalletIsLoadedChangedAndSaved(t *testing.T) {
	kit := newKit(t)
	require.ErrorIs(t, recipes.Deposit(t.Context(), kit.App.UoW, "w", 2), sql.ErrNoRows)
	within(t, kit, func(ctx context.Context, u *uow.Unit) error {
		w := &recipes.Wallet{ID: "w"}
		w.Deposit(1)
		return u.Save(ctx, w)
	})
	require.NoError(t, recipes.Deposit(t.Context(), kit.App.UoW, "w", 2))
	kit.Drain()
	oncetest.RequireEvent(kit, func(e recipes.Deposited) bool { return e.Cents == 2 })
	w := &recipes.Wallet{ID: "w"}
	require.NoError(t, kit.DB.NewSelect().Model(w).WherePK().Scan(t.Context()))
	require.Equal(t, []int64{3, 2}, []int64{w.Cents, w.Version})
}

func TestFirstDepositMakesTheWallet(t *testing.T) {
	kit := newKit(t)
	var many errgroup.Group
	many.SetLimit(2) // both may find no wallet; one of them is run again
	for range 4 {
		many.Go(func() error { return recipes.DepositFirst(t.Context(), kit.App.UoW, "w", 1) })
	}
	require.NoError(t, many.Wait())
	require.Equal(t, map[string]int64{"w": 4}, cents(t, kit))
}

func cents(t *testing.T, kit *oncetest.Kit) map[string]int64 {
	t.Helper()
	var wallets []recipes.Wallet
	require.NoError(t, kit.DB.NewSelect().Model(&wallets).Scan(t.Context()))
	found := map[string]int64{}
	for _, w := range wallets {
		found[w.ID] = w.Cents
	}
	return found
}

// Transfers in opposite directions at the same time: all succeed at their first try.
func TestTransfersInBothDirections(t *testing.T) {
	kit := newKit(t)
	for _, id := range []string{"a", "b"} {
		require.NoError(t, recipes.DepositFirst(t.Context(), kit.App.UoW, id, 100))
	}
	var many errgroup.Group
	many.SetLimit(10) // connections
	for i := range 40 {
		from, to := "a", "b"
		if i%2 == 1 {
			from, to = to, from
		}
		many.Go(func() error { return recipes.Transfer(t.Context(), kit.App.UoW, from, to, 5) })
	}
	require.NoError(t, many.Wait())
	require.Equal(t, map[string]int64{"a": 100, "b": 100}, cents(t, kit))

	require.ErrorIs(t, recipes.Transfer(t.Context(), kit.App.UoW, "a", "b", 101), recipes.ErrTooLittle)
	require.ErrorIs(t, recipes.Transfer(t.Context(), kit.App.UoW, "a", "none", 1), recipes.ErrNoWallet)
	require.NoError(t, recipes.Transfer(t.Context(), kit.App.UoW, "a", "b", 100))
	require.Equal(t, map[string]int64{"a": 0, "b": 200}, cents(t, kit))
	kit.Drain()
	oncetest.RequireEvents[recipes.Withdrawn](kit, 41)
}

func TestReminderIsSetAnewByEachDeposit(t *testing.T) {
	kit := newKit(t)
	remind := func() {
		within(t, kit, func(ctx context.Context, u *uow.Unit) error { return recipes.Remind(ctx, u, kit.App.Outbox, "w") })
	}
	remind()
	kit.Advance(20 * 24 * time.Hour)
	kit.Drain()
	remind()
	kit.Advance(20 * 24 * time.Hour)
	kit.Drain()
	require.Empty(t, published(t, kit))
	kit.Advance(11 * 24 * time.Hour)
	kit.Drain()
	require.Len(t, published(t, kit), 1)
	remind() // the former one has left
	kit.Drain()
	require.Len(t, published(t, kit), 1)
}

// published are the reminders that have left.
func published(t *testing.T, kit *oncetest.Kit) (ids []string) {
	t.Helper()
	require.NoError(t, kit.DB.NewRaw("SELECT id FROM outbox_messages WHERE topic = 'reminder' AND status = 'SENT'").Scan(t.Context(), &ids))
	return ids
}
