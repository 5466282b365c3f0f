package main

import (
	"context"
	"math"

	"github.com/uptrace/bun"
)

// beginLog ends a checkpoint, so that the pages that are filled next are in the log (WAL) as a whole before the measurement and not during it.
func beginLog(ctx context.Context, db *bun.DB) {
	if _, err := db.DB.ExecContext(ctx, "CHECKPOINT"); err != nil {
		progressf("no checkpoint before the run: %v", err) // CHECKPOINT needs a right of its own
	}
}

// writtenLog is how many bytes of log the server has written. It counts all that the server does. NaN: it does not say.
func writtenLog(ctx context.Context, db *bun.DB) float64 {
	var bytes float64
	err := db.DB.QueryRowContext(context.WithoutCancel(ctx), "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&bytes)
	if err != nil {
		return math.NaN()
	}
	return bytes
}
