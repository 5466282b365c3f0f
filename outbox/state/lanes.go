package state

import (
	"context"
	"database/sql"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/once"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// LaneCounted is the largest number of rows of a lane that [Reader.Lanes] counts.
const LaneCounted = 1000

// Lane is the state of a lane for operators. Each number of events stops at [LaneCounted].
type Lane struct {
	// Lane is the number of the lane, and Group the group of projectors that publishes it.
	Lane, Group int16
	// Owner is the projector that has the lane, "" if none has. Epoch counts the owners so far.
	Owner string
	Epoch int64
	// LeaseUntil is when another projector may take the lane, zero if no projector has it. Leased is true
	// if that is in the future.
	LeaseUntil time.Time
	Leased     bool
	// New is the number of events that wait for their first try, also of delayed events that the owner has not seen
	// yet. Claimed is how many of them may be on their way to the broker; 0 on a standby, which cannot know.
	New, Claimed int64
	// Held is the number of events that were refused and wait for their next try, or that wait behind such
	// an event or a dead letter.
	Held int64
	// Since is when the oldest of these events was recorded, or when its delay ended. Events whose time has not come do
	// not count, and neither do events of paused tenants. Zero: none waits.
	Since time.Time
	// Age is the time from Since to now, by the clock of the database.
	Age time.Duration
}

// Backlog returns the number of events of the lane that wait to be published.
func (l *Lane) Backlog() int64 { return l.New + l.Held }

// Lanes lists all lanes, ordered by number. It reads at most 2,000 rows of each, by an index.
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
	// Since is when the event was recorded, or when its delay ended.
	Since time.Time
	// Relayed is true if a relay has the lane of the event: the broker is in trouble, or the relay does not keep up.
	// Otherwise no relay of its group is running.
	Relayed bool
	// Owner is the relay that has the lane, or that had it and vanished. "" if the lane was handed back, or
	// never had a relay.
	Owner string
	// Error is the reason why the broker, or a topic, has refused everything from that relay since then, and FailedAt
	// when it last did. Empty if it has not.
	Error    string
	FailedAt time.Time
	// FailingSince is since when that goes on, zero if the broker, or the topic, has taken something since. FailingTopic is the topic, "" if it is the broker.
	FailingSince time.Time
	FailingTopic string
}

// Overdue returns the oldest overdue event of the lanes without a relay, and that of the lanes with one. The last
// minute does not count, because a lane may be between two relays. Events behind others of their key do not count
// either, and neither do events of paused tenants.
func (s *Reader) Overdue(ctx context.Context) ([]Overdue, error) {
	return once.Do(ctx, once.Key{Of: s.box, What: "overdue"}, s.overdue)
}

func (s *Reader) overdue(ctx context.Context) ([]Overdue, error) {
	list, err := pgsql.Collect(s.box.Run.Query(ctx, s.box.DB, outboxdb.OldestOverdue), func(scan pgsql.Scan, o *Overdue) error {
		var failed, failing sql.NullTime
		if err := scan(&o.Relayed, &o.Owner, &o.Since, &o.Error, &failed, &failing, &o.FailingTopic); err != nil {
			return err
		}
		o.FailedAt, o.FailingSince = failed.Time, failing.Time
		return nil
	})
	return list, outboxdb.Wrap("look for events that should have left", err)
}

// listProjectors lists the relays of the last day that have not shut down in order.
const listProjectors = `
SELECT p.owner, p.grp, p.deployment, p.seen_until > clock_timestamp(), p.seen_until, p.error, p.failed_at, p.failing_since, p.failing_topic,
	(SELECT count(*) FROM {schema}.outbox_lane l WHERE l.owner = p.owner AND l.lease_until > clock_timestamp())
FROM {schema}.outbox_projector p WHERE p.seen_until > clock_timestamp() - interval '1 day' ORDER BY p.grp, p.owner`

// Projector is the state of a projector, a process that publishes, for operators.
type Projector struct {
	// Owner is the projector's name as an owner of lanes, Group the group whose lanes it publishes, and
	// Deployment its setting of that name.
	Owner      string
	Group      int16
	Deployment string
	// Alive is true while its heartbeat is valid, which it is, or was, until SeenUntil. A projector that has shut down
	// in order is no longer listed; a projector that has vanished is listed for a day.
	Alive     bool
	SeenUntil time.Time
	// Lanes is the number of its lanes.
	Lanes int
	// Error is the reason why the broker, or a topic, last refused everything from it, and FailedAt when
	// that was; zero if it never did.
	Error    string
	FailedAt time.Time
	// FailingSince is since when that goes on; zero if the broker, or the topic, has taken something since. FailingTopic is the topic, "" if it is the
	// broker.
	FailingSince time.Time
	FailingTopic string
}

// Projectors lists the processes that publish, and the processes that vanished within the last day.
func (s *Reader) Projectors(ctx context.Context) ([]Projector, error) {
	list, err := pgsql.Collect(s.box.AdHoc().Query(ctx, s.box.DB, listProjectors), func(scan pgsql.Scan, p *Projector) error {
		var failed, failing sql.NullTime
		if err := scan(&p.Owner, &p.Group, &p.Deployment, &p.Alive, &p.SeenUntil, &p.Error, &failed, &failing, &p.FailingTopic, &p.Lanes); err != nil {
			return err
		}
		p.FailedAt, p.FailingSince = failed.Time, failing.Time
		return nil
	})
	return list, outboxdb.Wrap("list projectors", err)
}
