// Package store has the statements of the inbox on its tables, and what they take and return. It knows no handler: package inbox decides.
package store

import (
	"log/slog"
	"time"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/uow"
)

// Handle is how the packages of the inbox reach its tables.
type Handle struct {
	Units *uow.Manager
	// SQL runs statements that have to answer in time. Patient runs statements that may take long: cleaning, and waiting for handlers to end.
	SQL, Patient *pgsql.Runner
	Log          *slog.Logger
	// Lease is how long a process that has taken work over may be silent before another one takes it: Config.ParkedLease.
	Lease time.Duration
	// Wake has this process look at parked messages at once.
	Wake func()
}
