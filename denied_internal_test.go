package oncebox

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

func TestARightIsToldOfOnceAnHour(t *testing.T) {
	of := func(table string) error {
		return &pgconn.PgError{Code: "42501", Message: "permission denied for table " + table}
	}
	told, now := &told{at: map[string]time.Time{}}, time.Now()
	require.True(t, told.first(of("outbox"), now))
	require.False(t, told.first(of("outbox"), now.Add(time.Hour-time.Second)))
	require.True(t, told.first(of("inbox"), now))
	require.True(t, told.first(of("outbox"), now.Add(time.Hour)), "it may have been taken away once more")
}
