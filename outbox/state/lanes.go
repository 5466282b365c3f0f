package state

import (
	"context"
	"database/sql"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// LaneCounted is the largest number of rows of a lane that [Reader.Lanes] counts.
const LaneCounted = 1000

// Lane is what an operator sees of a lane. Each number of events goes up to [LaneCounted].
type Lane struct {
	// Lane is its number, and Group the group of projectors that publishes it.
	Lane, Group int16
	// Owner is the projector that has it, "" if none has. Epoch counts its owners.
	Owner string
	Epoch int64
	// LeaseUntil is when another projector may take it, zero if none has it. Leased says that this is ahead.
	LeaseUntil time.Time
	Leased     bool
	// New events wait for their first try, those that wait for their time included until the owner has seen them. Claimed is how many of them may be on their
	// way to the broker; 0 on a standby, which does not know it.
	New, Claimed int64
	// Held events were refused and wait for their next try, or wait behind such an event or a dead letter.
	Held int64
	// Since is when the oldest of those events was recorded, or the time to which it was delayed. An event that waits for its time does not count, nor
	// does one of a paused tenant. Zero: nothing waits.
	Since time.Time
	// Age is how long ago that is, by the clock of the database.
	Age time.Duration
}

// Backlog is how many events of the lane wait to be published.
func (l *Lane) Backlog() int64 { return l.New + l.Held }

// Lanes lists all lanes in the order of their numbers. It reads at most 2,000 rows of each, by an index, whatever the backlog is.
func (s *Reader) Lanes(ctx context.Context) (list []Lane, err error) {
	err = s.uncompiled(ctx, func(ctx context.Context, tx bun.Tx) error {
		list, err = pgsql.Collect(s.box.AdHoc().Query(ctx, tx, outboxdb.LaneStates), func(scan pgsql.Scan, l *Lane) error {
			var until, since sql.NullTime
			var age float64
			if err := scan(&l.Lane, &l.Group, &l.Owner, &l.Epoch, &until, &l.Leased, &l.New, &l.Claimed, &l.Held, &since, &age); err != nil {
				return err
			}
			l.LeaseUntil, l.Since, l.Age = until.Time, since.Time, seconds(age)
			return nil
		})
		return err
	})
	return list, outboxdb.Wrap("list lanes", err)
}
