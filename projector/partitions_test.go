package projector_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Somebody reads the published rows for long, so no partition can be made. What is to be published is published.
func TestRunOncePublishesBesideALongReader(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	tx, err := f.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }() // before the schema is dropped
	_, err = f.db.Exec("DROP TABLE outbox_progress_" + time.Now().UTC().Format("20060102"))
	require.NoError(t, err)
	_, err = tx.Exec("SELECT FROM outbox_progress")
	require.NoError(t, err)
	f.add("a", "a1")
	require.NoError(t, f.projector(quick()).RunOnce(t.Context()))
	require.Equal(t, []string{"a1"}, f.pub.types())
	require.NotZero(t, f.rows("outbox_progress_default p WHERE p.total = 1"), "and its position moves to its day when that can be made")
}
