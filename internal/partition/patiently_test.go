package partition

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgerr"
)

var errInUse = &pgconn.PgError{Code: pgerr.LockNotAvailable}

func TestEveryDayIsTried(t *testing.T) {
	broken := errors.New("broken")
	var days []int
	err := each(t.Context(), -1, 2, func(day int) error {
		days = append(days, day)
		if day == 0 {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, err, broken)
	require.Equal(t, []int{-1, 0, 1, 2}, days)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, each(ctx, 0, 1, func(int) error { t.Error("nothing is tried any more"); return nil }), context.Canceled)
}

// A table that is in use is waited for, and if that was in vain, once for all days.
func TestTableInUseIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := map[int]int{}
		err := each(t.Context(), 0, 2, func(day int) error {
			tries[day]++
			return errInUse
		})
		require.True(t, InUse(err))
		require.Equal(t, map[int]int{0: 1 + patience, 1: 1, 2: 1}, tries)

		tries = map[int]int{}
		require.NoError(t, each(t.Context(), 0, 2, func(day int) error {
			if tries[day]++; tries[day] < 3 {
				return errInUse
			}
			return nil
		}))
		require.Equal(t, map[int]int{0: 3, 1: 3, 2: 3}, tries, "it was not in vain")
	})
}
