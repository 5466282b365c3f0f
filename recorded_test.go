package oncebox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/uow"
)

// In each kind of unit the metric counts what is there afterwards: nothing of a function that fails, of a COMMIT that fails and of a savepoint that
// is undone, and nothing twice.
func TestRecordedIsWhatIsThere(t *testing.T) {
	for pool, units := range map[string]map[string]func(*ender) error{"OpenDB": kinds, "UseDB": {"unit": kinds["unit"]}} { // the latter sends no batches
		db := pgtest.Migrated(t)
		_, err := db.Exec("CREATE TABLE at_commit (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
		require.NoError(t, err)
		e := newEnder(t, db, pools[pool], false)
		for kind, unit := range units {
			for end, last := range map[string]string{"committed": "SELECT 1", "fails": "", "COMMIT fails": "INSERT INTO at_commit VALUES (1), (1)"} {
				t.Run(pool+" "+kind+" "+end, func(t *testing.T) {
					there := events(t, db)
					e.function = func(ctx context.Context) error { return record(ctx, e, last) }
					err := unit(e)
					require.Equal(t, events(t, db), total(t, e.metrics, "oncebox.outbox.recorded"))
					if end == "committed" {
						return
					}
					require.Equal(t, there, events(t, db))
					if !strings.HasSuffix(kind, "422") { // the refusal is the answer
						require.Error(t, err)
					}
				})
			}
		}
		require.NotZero(t, events(t, db))
	}
}

// record records two events and one in a savepoint that is undone, one of them a repetition. last is a statement; "": it fails.
func record(ctx context.Context, e *ender, last string) error {
	add := func(ctx context.Context, key string) error {
		u, ok := uow.FromContext(ctx)
		require.True(e, ok)
		return u.Add("order", []byte("placed"), event.WithType("placed"), event.WithDedupKey(key))
	}
	undone := errors.New("undone")
	err := e.UoW.Do(ctx, func(ctx context.Context, _ *uow.Unit) error { return errors.Join(add(ctx, ""), undone) })
	require.ErrorIs(e, err, undone)
	if err := errors.Join(add(ctx, ""), add(ctx, "known")); err != nil {
		return err
	}
	if last == "" {
		return errors.New("not now")
	}
	_, err = e.UoW.DB(ctx).NewRaw(last).Exec(ctx)
	return err
}

func events(t *testing.T, db *pgtest.DB) (n int64) {
	t.Helper()
	require.NoError(t, db.NewRaw("SELECT count(*) FROM outbox").Scan(t.Context(), &n))
	return n
}

// total is what a counter shows, over all its series.
func total(t *testing.T, from *metric.ManualReader, name string) (n int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, from.Collect(t.Context(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
				for _, p := range sum.DataPoints {
					n += p.Value
				}
			}
		}
	}
	return n
}
