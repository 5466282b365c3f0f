package inbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/uow"
)

// guarded is a world whose pool refuses statements within a unit and under a lease.
func guarded(t *testing.T) *world {
	t.Helper()
	db := pgtest.Migrated(t, pgtest.Inbox)
	cfg, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	pool := pgsql.OpenGuarded(pgsql.NewConnector(*cfg))
	t.Cleanup(func() { _ = pool.Close() })
	own := *db
	own.DB = bun.NewDB(pool, pgdialect.New())
	return newWorldIn(t, &own)
}

// A leased handler has no transaction, and units.DB(ctx) is the pool there: its writes are repeated by the next try.
func TestThePoolIsRefusedUnderALease(t *testing.T) {
	w := guarded(t)
	err := w.box.WrapLeased("billing", messaging.HandlerFunc(w.effect)).Handle(t.Context(), unordered("m1"))
	require.ErrorIs(t, err, uow.ErrPool)
	require.ErrorContains(t, err, "runs under a lease: the handler has no transaction")
	require.ErrorContains(t, err, "inbox.StepInUnit, or Manager.Do")
	require.ErrorContains(t, err, "uow.Outside(ctx)")
	require.Empty(t, w.effects())
}

func TestWhatALeasedHandlerMayDo(t *testing.T) {
	w := guarded(t)
	handler := messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		_, err := step.Call(ctx, "call", func(context.Context, string) (string, error) { return "done", nil })
		require.NoError(t, err)
		require.NoError(t, inbox.StepInUnit(ctx, "local", func(ctx context.Context, u *uow.Unit) error {
			require.NoError(t, w.effect(ctx, m), "units.DB is the unit")
			_, err := w.db.NewRaw("INSERT INTO effects (what) VALUES ('beside')").Exec(ctx)
			require.ErrorIs(t, err, uow.ErrPool)
			require.ErrorContains(t, err, "a unit of work")
			return nil
		}))
		require.NoError(t, w.units.Do(ctx, func(context.Context, *uow.Unit) error { return w.effect(uow.Outside(ctx), m) }))
		return nil
	})
	require.NoError(t, w.box.WrapLeased("billing", handler).Handle(t.Context(), unordered("m1")))
	require.Equal(t, []string{"m1", "m1"}, w.effects())
}

// The message is handled in a unit: the pool is not part of it.
func TestThePoolIsRefusedInAHandler(t *testing.T) {
	w := guarded(t)
	err := w.box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		_, err := w.db.NewRaw("INSERT INTO effects (what) VALUES ('beside')").Exec(ctx)
		return err
	})).Handle(t.Context(), unordered("m1"))
	require.ErrorIs(t, err, uow.ErrPool)
	require.Empty(t, w.effects())
}
