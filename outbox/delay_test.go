package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/delayed"
	"github.com/oncebox/oncebox/uow"
)

// The clock of the database is two days ahead of that of the process.
func TestDelayIsByTheClockOfTheDatabase(t *testing.T) {
	f := newFixture(t, nil)
	f.Exec(`CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $f$ SELECT pg_catalog.clock_timestamp() + interval '48 hours' $f$`)
	var timed, plain string
	f.Commit(func(tx bun.Tx) {
		_, err := tx.Exec("SET LOCAL search_path = ?0, pg_catalog", bun.Ident(f.DB.Schema))
		require.NoError(t, err)
		ids, err := f.AddAll(t.Context(), tx,
			draft("in an order", "k", event.WithDelay(time.Hour)), draft("at once", "k", event.WithDelay(0)),
			outbox.Draft{Topic: "order", Payload: []byte("reminder"), Options: []event.AddOption{
				event.WithType("reminder"), event.WithAggregate("order", "7", 0), event.WithDelay(time.Hour),
			}})
		require.NoError(t, err)
		timed, plain = ids[2], ids[1]
	})
	require.Equal(t, 2, f.Count("outbox WHERE not_before BETWEEN now() + interval '48 hours 30 minutes' AND now() + interval '49 hours 30 minutes'"))
	require.Equal(t, 1, f.Count("outbox WHERE id = ? AND not_before IS NULL", plain))
	require.Equal(t, 1, f.Count("outbox WHERE id = ? AND ordering_key IS NULL", timed), "a delayed event leaves the order of its aggregate")
}

// A service stores the id that Schedule returns, and cancels the event in a later unit.
func TestScheduledEventIsCancelledByItsID(t *testing.T) {
	f := newFixture(t, nil)
	units := uow.New(f.DB.DB, &uow.Config{Source: "test"}, f.Store)
	var ids []string
	require.NoError(t, units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		for _, when := range []event.AddOption{event.WithDelay(time.Hour), event.WithNotBefore(time.Now().Add(time.Hour)), event.WithDelay(0)} {
			id, err := u.Schedule("reminder", map[string]int{"order": 7}, when, event.WithType("order.forgotten"))
			require.NoError(t, err)
			ids = append(ids, id)
		}
		_, err := u.Schedule("reminder", map[string]int{}, event.WithDelay(-time.Second), event.WithType("order.forgotten"))
		require.ErrorIs(t, err, event.ErrInvalid)
		require.ErrorContains(t, err, "uow: Schedule: ")
		return nil
	}))
	require.Equal(t, 3, f.Count("outbox"))
	cancel := func(id string) (err error) {
		require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			err = f.Delayed().Cancel(ctx, u.DB(), id)
			return nil
		}))
		return err
	}
	require.NoError(t, cancel(ids[0]))
	require.NoError(t, cancel(ids[1]))
	require.ErrorIs(t, cancel(ids[0]), delayed.ErrTooLate, "it was cancelled")
	require.ErrorIs(t, cancel(ids[2]), delayed.ErrTooLate, "it was not delayed")
	require.Equal(t, 1, f.Count("outbox"))
}
