package state

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Counted is the largest number of rows of a kind that are counted exactly. If there are more, Stats returns an
// estimate of at least Counted+1. For new events it follows from the density of the first ones among the numbers. For
// other rows it is PostgreSQL's own estimate (pg_stat_all_tables.n_live_tup, or pg_class.reltuples after a crash,
// which clears the former).
const Counted = 10_000

// Stats has the numbers that an operator looks at first. Each number of events is exact up to [Counted].
type Stats struct {
	// OldestAge is how long the oldest event that should have been published has waited: since it was
	// recorded, since the end of its delay, or since its tenant was resumed. Events behind a refused event
	// or a dead letter count with their own age. Dead letters, events of paused tenants, events whose time
	// has not come, and events behind these in their keys do not count. Only the first
	// events of each lane are looked at. As long as no relay has moved past hundreds of events of paused tenants, or of
	// delayed ones, at the front of a lane, the value may be too high. 0: none waits.
	OldestAge time.Duration
	// New is the number of events that wait for their first try, or are on their way to the broker, without
	// those of paused tenants.
	New int64
	// Held is the number of events that were refused and wait for their next try, or that wait behind such an event or
	// a dead letter, without those of paused tenants.
	Held int64
	// Failed is the number of events that were refused and wait for their next try. MostTries is the
	// highest number of refusals of one of them.
	Failed    int64
	MostTries int
	// Delayed is the number of events whose time has not come.
	Delayed int64
	// Paused is the number of events whose tenant is paused. TenantsPaused is the number of paused tenants.
	Paused        int64
	TenantsPaused int
	// Dead is the number of dead letters.
	Dead int64
	// Sent is the number of published events that are kept. It is always an estimate.
	Sent int64
	// Blocked is the number of keys whose head is held or dead, up to 10,000.
	Blocked int64

	// Lanes is the number of lanes, and BusyLanes of lanes with an event that should have been published. FreeLanes is
	// the number of lanes without an owner; if it is more than 0 for longer than a lease, no projector is running.
	Lanes, BusyLanes, FreeLanes int
	// PartitionsMissing is the number of days, of today and tomorrow, without a partition of outbox. Their
	// rows go to the DEFAULT partition.
	PartitionsMissing int
	// SnapshotAge is the age of the oldest open transaction that keeps VACUUM from removing rows, and the relay from
	// skipping published rows. Transactions of other roles are visible only to a role with the rights of
	// pg_read_all_stats.
	SnapshotAge time.Duration

	// Shares divides New, Held, Paused and Dead by topic and tenant, the largest share first. Beyond [Counted] they are
	// estimates: those of New and Held come from the rows at the front of each lane.
	Shares []Share
}

// Share has the numbers for one topic and one tenant.
type Share struct {
	Topic, Tenant           string
	New, Held, Paused, Dead int64
}

func (s *Share) total() int64 { return s.New + s.Held + s.Paused + s.Dead }

// Backlog returns the number of events that wait to be published, without delayed events and events of paused tenants.
func (st Stats) Backlog() int64 { return st.New + st.Held }

// Plus returns the statistics of two outboxes together: the sums of the numbers, and the higher ages.
func (st Stats) Plus(other *Stats) Stats {
	st.OldestAge, st.SnapshotAge = max(st.OldestAge, other.OldestAge), max(st.SnapshotAge, other.SnapshotAge)
	st.MostTries = max(st.MostTries, other.MostTries)
	st.New, st.Held, st.Failed, st.Delayed = st.New+other.New, st.Held+other.Held, st.Failed+other.Failed, st.Delayed+other.Delayed
	st.Paused, st.TenantsPaused = st.Paused+other.Paused, st.TenantsPaused+other.TenantsPaused
	st.Dead, st.Blocked, st.Sent = st.Dead+other.Dead, st.Blocked+other.Blocked, st.Sent+other.Sent
	st.Lanes, st.BusyLanes, st.FreeLanes = st.Lanes+other.Lanes, st.BusyLanes+other.BusyLanes, st.FreeLanes+other.FreeLanes
	st.PartitionsMissing += other.PartitionsMissing
	shares := slices.Clone(st.Shares)
	for _, s := range other.Shares {
		n := slices.IndexFunc(shares, func(o Share) bool { return o.Topic == s.Topic && o.Tenant == s.Tenant })
		if n < 0 {
			shares = append(shares, s)
			continue
		}
		shares[n].New, shares[n].Held = shares[n].New+s.New, shares[n].Held+s.Held
		shares[n].Paused, shares[n].Dead = shares[n].Paused+s.Paused, shares[n].Dead+s.Dead
	}
	sortShares(shares)
	st.Shares = shares
	return st
}

// Stats reads the state of the outbox. It costs a few index look-ups per lane and bounded counts, whatever the backlog is.
func (s *Reader) Stats(ctx context.Context) (Stats, error) {
	st, believed, err := s.readNumbers(ctx)
	if err != nil {
		return Stats{}, outboxdb.Wrap("read outboxdb.Statistics", err)
	}
	// If both kinds are believed to be far more than what is counted, the front rows are enough.
	front := min(believed.fresh, believed.refused()) > 4*Counted
	statement := outboxdb.CountAll
	if front {
		statement = outboxdb.CountFront
	}
	c, err := s.countShares(ctx, statement)
	if err != nil {
		return Stats{}, outboxdb.Wrap("count rows by topic and tenant", err)
	}
	st.New, st.Held, st.Paused, st.Dead = c.fresh, c.held, c.pausedFresh+c.pausedHeld, c.dead
	st.Sent = max(st.Sent-believed.fresh, 0) // delayed events lie in the same table
	st.Delayed += c.delayed
	manyNew, manyHeld, manyDead := front || c.fresh+c.pausedFresh+c.delayed > Counted, front || c.held+c.pausedHeld > Counted, c.dead > Counted
	if !front && (manyNew || manyHeld) {
		if c, err = s.countShares(ctx, outboxdb.CountFront); err != nil {
			return Stats{}, outboxdb.Wrap("look at rows by topic and tenant", err)
		}
	}
	pausedFresh, pausedHeld := c.pausedFresh, c.pausedHeld
	if manyNew {
		st.New, pausedFresh = divide(max(believed.fresh, Counted+1), c.fresh, c.pausedFresh)
	}
	if manyHeld {
		st.Held, pausedHeld = divide(max(believed.refused(), Counted+1), c.held, c.pausedHeld)
	}
	st.Paused = pausedFresh + pausedHeld
	if st.Delayed > Counted {
		st.Delayed = max(believed.held-st.Held-pausedHeld, Counted+1)
	}
	if manyDead {
		st.Dead = max(believed.dead, Counted+1)
	}
	c.scale(&st)
	st.Shares = c.shares
	return st, nil
}

// believed is an estimate of the number of rows, and of the part of the held rows that do not wait for their own time.
type believed struct {
	fresh, held, dead int64
	waiting           float64
}

// refused is the number of held rows that do not wait for their own time.
func (b *believed) refused() int64 { return int64(float64(b.held) * b.waiting) }

// uncompiled runs statements that the server does not compile. Their costs are overestimated, and to compile them takes longer than to run them, with
// each day that is kept.
func (s *Reader) uncompiled(ctx context.Context, fn func(context.Context, bun.Tx) error) error {
	return s.box.Without(ctx, []string{"jit"}, fn)
}

// readNumbers reads everything but the shares.
func (s *Reader) readNumbers(ctx context.Context) (st Stats, b believed, err error) {
	err = s.uncompiled(ctx, func(ctx context.Context, tx bun.Tx) error {
		if st, b, err = s.readStats(ctx, tx, outboxdb.FrontOfLane); err == nil && st.TenantsPaused > 0 {
			st, b, err = s.readStats(ctx, tx, outboxdb.FrontOfPausedLane)
		}
		return err
	})
	return st, b, err
}

// readStats reads the statistics. For the age it looks at front rows of each lane.
func (s *Reader) readStats(ctx context.Context, db bun.IDB, front int) (st Stats, b believed, err error) {
	var age, snapshot float64
	var timed int64
	err = s.box.AdHoc().QueryRow(ctx, db, fmt.Sprintf(outboxdb.Statistics, front), nil, &st.Lanes, &st.FreeLanes, &st.BusyLanes,
		&age, &timed, &st.Delayed, &st.Failed,
		&st.MostTries, &st.Blocked, &b.fresh, &b.held, &b.dead, &b.waiting, &st.Sent, &st.PartitionsMissing, &snapshot,
		&st.TenantsPaused)
	st.OldestAge, st.SnapshotAge = seconds(age), seconds(snapshot)
	if timed > Counted { // refused rows stood in front of the rows to be counted, or there really are so many
		st.Delayed = max(st.Delayed, Counted+1)
	}
	return st, b, err
}

// counts has the numbers of the rows that were read.
type counts struct {
	fresh, delayed, held, dead int64
	pausedFresh, pausedHeld    int64
	shares                     []Share
}

func (s *Reader) countShares(ctx context.Context, statement string) (c counts, err error) {
	type pair struct{ topic, tenant string }
	shares := map[pair]*Share{}
	err = pgsql.Each(s.box.AdHoc().Query(ctx, s.box.DB, statement), func(scan pgsql.Scan) error {
		var state string
		var p pair
		var n int64
		var paused bool
		if err := scan(&state, &p.topic, &p.tenant, &n, &paused); err != nil {
			return err
		}
		if state == "delayed" {
			c.delayed += n
			return nil
		}
		share := shares[p]
		if share == nil {
			share = &Share{Topic: p.topic, Tenant: p.tenant}
			shares[p] = share
		}
		switch {
		case state == "new" && paused:
			c.pausedFresh, share.Paused = c.pausedFresh+n, share.Paused+n
		case state == "held" && paused:
			c.pausedHeld, share.Paused = c.pausedHeld+n, share.Paused+n
		case state == "new":
			c.fresh, share.New = c.fresh+n, n
		case state == "held":
			c.held, share.Held = c.held+n, n
		default:
			c.dead, share.Dead = c.dead+n, n
		}
		return nil
	})
	for _, share := range shares {
		c.shares = append(c.shares, *share)
	}
	return c, err
}

// divide splits the estimated number all into the rows of paused tenants and the rest. It assumes the proportion of the
// rows that were counted.
func divide(all, counted, paused int64) (rest, ofPaused int64) {
	if counted+paused == 0 {
		return all, 0
	}
	ofPaused = int64(float64(all) * float64(paused) / float64(counted+paused))
	return all - ofPaused, ofPaused
}

// scale extrapolates the counted shares to the estimated number of rows.
func (c *counts) scale(st *Stats) {
	part := func(n, of, all int64) int64 {
		if of == 0 || of == all {
			return n
		}
		return int64(float64(n) / float64(of) * float64(all))
	}
	for i := range c.shares {
		share := &c.shares[i]
		share.New, share.Held = part(share.New, c.fresh, st.New), part(share.Held, c.held, st.Held)
		share.Paused, share.Dead = part(share.Paused, c.pausedFresh+c.pausedHeld, st.Paused), part(share.Dead, c.dead, st.Dead)
	}
	sortShares(c.shares)
}

func sortShares(shares []Share) {
	slices.SortFunc(shares, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.total(), a.total()), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Tenant, b.Tenant))
	})
}

// Menu has the numbers of a menu for operators. Each counts up to 1,001, which means that there are more than 1,000.
type Menu struct {
	// Dead is the number of dead letters, and Failing of events that were refused and are tried again.
	Dead, Failing int
	// Delayed is the number of delayed events without an ordering key, as far as a relay has seen them.
	Delayed int
	// TenantsPaused is the number of paused tenants.
	TenantsPaused int
}

// Menu reads the numbers of a menu. It is one statement, and much cheaper than [Reader.Stats].
func (s *Reader) Menu(ctx context.Context) (m Menu, err error) {
	err = s.box.AdHoc().QueryRow(ctx, s.box.DB, outboxdb.Menu, nil, &m.Dead, &m.Failing, &m.Delayed, &m.TenantsPaused)
	return m, outboxdb.Wrap("read the numbers of a menu", err)
}
