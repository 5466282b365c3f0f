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

// Overdue is an event that should have left more than a minute ago, and the relay of its lane.
type Overdue struct {
	// Since is when it was recorded, or the time to which it was delayed.
	Since time.Time
	// Relayed says that a relay has its lane: the broker is in trouble, or the relay does not keep up. Otherwise no relay is running, or none of
	// its group.
	Relayed bool
	// Owner is the relay that has the lane, or the relay that had it and vanished. "" if the lane was given back, or never had a relay.
	Owner string
	// Error is why the broker, or a topic, last took nothing from that relay, if that was so since then, and FailedAt when that was.
	Error    string
	FailedAt time.Time
}

// Overdue returns the oldest event that should have left, of the lanes without a relay, and then that of the lanes with one. Events of the last
// minute do not count: lanes are between two relays at times. Nor do events that wait behind others of their key, or whose tenant is paused.
func (s *Reader) Overdue(ctx context.Context) ([]Overdue, error) {
	list, err := pgsql.Collect(s.box.Run.Query(ctx, s.box.DB, outboxdb.OldestOverdue), func(scan pgsql.Scan, o *Overdue) error {
		var failed *time.Time
		if err := scan(&o.Relayed, &o.Owner, &o.Since, &o.Error, &failed); err != nil {
			return err
		}
		if failed != nil {
			o.FailedAt = *failed
		}
		return nil
	})
	return list, outboxdb.Wrap("look for events that should have left", err)
}

// listProjectors lists the relays of the last day that have not ended in order.
const listProjectors = `
SELECT p.owner, p.grp, p.deployment, p.seen_until > clock_timestamp(), p.seen_until, p.error, p.failed_at,
	(SELECT count(*) FROM {schema}.outbox_lane l WHERE l.owner = p.owner AND l.lease_until > clock_timestamp())
FROM {schema}.outbox_projector p WHERE p.seen_until > clock_timestamp() - interval '1 day' ORDER BY p.grp, p.owner`

// Projector is what an operator sees of a projector: a process that publishes.
type Projector struct {
	// Owner is its name among the owners of lanes, Group the group whose lanes it publishes, Deployment that of its settings.
	Owner      string
	Group      int16
	Deployment string
	// Alive says that its heartbeat lasts, SeenUntil until when it does, or did. A projector that ends as it should is not listed any more; one that
	// vanished is, for a day.
	Alive     bool
	SeenUntil time.Time
	// Lanes is how many lanes it has.
	Lanes int
	// Error is why the broker, or a topic, last took nothing from it, and FailedAt when that was. Zero: it never was so.
	Error    string
	FailedAt time.Time
}

// Projectors lists the processes that publish, and the processes that vanished within the last day.
func (s *Reader) Projectors(ctx context.Context) ([]Projector, error) {
	list, err := pgsql.Collect(s.box.AdHoc().Query(ctx, s.box.DB, listProjectors), func(scan pgsql.Scan, p *Projector) error {
		var failed *time.Time
		if err := scan(&p.Owner, &p.Group, &p.Deployment, &p.Alive, &p.SeenUntil, &p.Error, &failed, &p.Lanes); err != nil {
			return err
		}
		if failed != nil {
			p.FailedAt = *failed
		}
		return nil
	})
	return list, outboxdb.Wrap("list projectors", err)
}
