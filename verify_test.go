package oncebox_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging/memory"
)

// With tables that differ the process works. Where tables are missing it ends.
func TestRunLogsHowTheTablesDiffer(t *testing.T) {
	db := pgtest.Migrated(t)
	_, err := db.ExecContext(t.Context(), "DROP INDEX outbox_held_due")
	require.NoError(t, err)
	var log bytes.Buffer
	cfg := apptest.Config()
	cfg.Schema, cfg.Telemetry.Logger = db.Schema, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))
	app, err := oncebox.New(db.DB, memory.New(nil), cfg)
	require.NoError(t, err)
	stop := apptest.Run(t, app, oncebox.Relay)
	await.True(t, func() bool { return app.Ready(context.Background(), oncebox.Relay) == nil }, "the relay is ready")
	stop()
	require.Contains(t, log.String(), `level=ERROR msg="oncebox: a table, index or function differs from the migrations; `+
		`the field mend has the statement that repairs it" schema=`+db.Schema+
		` object="index outbox_held_due" problem="is missing" mend="CREATE INDEX outbox_held_due ON `+db.Schema+".outbox_held ")

	_, err = db.ExecContext(t.Context(), "DELETE FROM oncebox_migrations WHERE name LIKE '%outbox%'")
	require.NoError(t, err)
	require.ErrorContains(t, app.Run(t.Context(), oncebox.Relay), "oncebox: Run: migrations: schema")
}
