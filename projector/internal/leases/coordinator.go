package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// leaseEnd is the time that is added to the end of a lease, so that the other leases of the same owner have ended
// too. One statement renews all of them, but a moment apart.
const leaseEnd = 50 * time.Millisecond

// Settings are those of projector.Config that a coordinator needs.
type Settings struct {
	Name      string
	Group     int16
	Lease     time.Duration
	Renew     time.Duration
	SleepBusy time.Duration
}

// Coordinator holds the leases of one store: it claims lanes, renews them, and gives them back, so that all
// projectors that are alive have equal shares.
//
// No projector knows the others. Each one counts the heartbeats and the lanes, computes its share, and takes or gives
// back as many lanes as differ from it. So a projector that comes or vanishes changes the shares of all others at their
// next beats, and nobody decides for anybody else.
type Coordinator struct {
	cfg     Settings
	leases  lanedb.Leases
	log     *slog.Logger
	fenced  metric.Int64Counter
	Workers []*Owned

	Tenants schedule.Tenants
	Failure Failure

	Hears atomic.Bool   // the connection for NOTIFY is up, so commits of all processes wake the workers
	freed chan struct{} // has a token when lanes were handed back: the next beat comes at once
	// rehearsed is true if the statements that serve lanes succeeded, and nothing has failed since.
	rehearsed atomic.Bool

	// The rest is what the beats remember from one to the next. Only the goroutine of the beats uses it.
	unserved      []int64       // groups that had no projector at the last beat
	unservedBeats int           // the number of beats for which they have been the same
	noted         failing       // the failure that was written down
	failing       bool          // it was written down, and goes on
	isShort       bool          // other projectors have lanes of this one's share
	nextFree      time.Duration // until a lane of another projector may be free, as of the last beat
}

// New returns the coordinator of one store. Each worker has lanes of its own; a batch must begin while
// their leases last for margin.
func New(cfg Settings, leases lanedb.Leases, workers int, margin time.Duration, log *slog.Logger, fenced metric.Int64Counter) *Coordinator {
	c := &Coordinator{cfg: cfg, leases: leases, log: log, fenced: fenced, freed: make(chan struct{}, 1)}
	for range workers {
		c.Workers = append(c.Workers, NewOwned(margin))
	}
	return c
}

// Rest waits until it is time to coordinate again. That is Config.Renew, but less in three cases, so that free lanes
// are taken at once: the lease of another projector ends earlier; another projector hands lanes back; or other
// projectors have lanes of this one's share, and no notification comes when they are handed back.
func (c *Coordinator) Rest(ctx context.Context) {
	pause := c.cfg.Renew
	// A lease that is not renewed is that of a projector that has vanished. Its lanes stand still until they are claimed.
	if c.nextFree > 0 {
		pause = min(pause, c.nextFree+leaseEnd)
	}
	if c.isShort && !c.Hears.Load() {
		pause = min(pause, c.cfg.SleepBusy)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.freed:
	case <-ctx.Done():
	}
}

// RehearseAnew makes the next beat rehearse anew, because the tables or the rights of the role may have changed.
func (c *Coordinator) RehearseAnew() { c.rehearsed.Store(false) }

// Hurry makes the next beat come at once.
func (c *Coordinator) Hurry() {
	select {
	case c.freed <- struct{}{}:
	default:
	}
}

// Coordinate renews the leases and takes or gives back lanes, so that all projectors that are alive have equal shares.
//
// A lease is counted from the moment before its statement was sent, by the monotonic clock of this process. The
// database counts from a later moment. So this process always stops before the database gives the lane to another
// one.
//
// Each statement has a third of the lease, as in internal/lease. If a connection hangs, the statement is given up
// while there is time to try again, and no lane is lost.
//
// The order matters. The checks that may make this process leave come first, then the heartbeat, which claims a
// share. The paused tenants are read right before the renewal, see readPauses. Lanes are claimed or given back last,
// when it is known how many are held.
func (c *Coordinator) Coordinate(ctx context.Context) error {
	c.isShort = false
	// Before the heartbeat: a projector that is alive has a share of the lanes, and this one would leave its share unserved.
	if err := c.answered(ctx, c.leases.CheckOwner); err != nil {
		return errors.Join(err, c.leave(ctx, err))
	}
	if err := c.rehearse(ctx); err != nil {
		return errors.Join(err, c.leave(ctx, err))
	}
	all, err := c.heartbeat(ctx)
	if err != nil {
		return err
	}
	c.nextFree = all.NextFree
	if err := c.noteFailure(ctx); err != nil {
		return err
	}
	if all.FarAhead {
		c.cutLeases(ctx)
	}
	c.reportUnserved(ctx, all.Unserved)
	if err := c.readPauses(ctx); err != nil {
		return err
	}
	held, err := c.renew(ctx)
	if err != nil {
		return err
	}
	// Rounded up, so that the shares of all projectors together cover all lanes.
	share := (all.Lanes + all.Alive - 1) / all.Alive
	switch {
	case held < share:
		return c.claim(ctx, share-held)
	case held > share:
		c.markSurplus(held - share)
	}
	return nil
}

// answered calls fn, which sends one statement of the coordinator. The statement is not cancelled when the program is
// stopped: a claim that comes through late would leave a lane with a projector that is gone.
func (c *Coordinator) answered(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Lease/3)
	defer cancel()
	return fn(ctx)
}

func (c *Coordinator) heartbeat(ctx context.Context) (all lanedb.Membership, err error) {
	err = c.answered(ctx, func(ctx context.Context) (err error) {
		all, err = c.leases.Heartbeat(ctx, c.cfg.Name, c.cfg.Group, c.cfg.Lease)
		return err
	})
	return all, err
}

// noteFailure stores the last reason why the broker took nothing, and whether it has taken nothing since then. An operator looks for it if the broker is
// away for this process alone.
func (c *Coordinator) noteFailure(ctx context.Context) error {
	is := c.Failure.now()
	goesOn, first := is.lasts(c.cfg.Renew), -time.Second // it is over
	if goesOn {
		first = time.Since(is.began)
	}
	if is == c.noted && goesOn == c.failing {
		return nil
	}
	err := c.answered(ctx, func(ctx context.Context) error {
		return c.leases.NoteFailure(ctx, c.cfg.Name, is.reason, is.topic, time.Since(is.last), first)
	})
	if err == nil {
		c.noted, c.failing = is, goesOn
	}
	return err
}

// errCannotServe is the error of a projector that leaves the lanes to others, because its build or its role does not
// fit the tables.
var errCannotServe = errors.New("projector: this process cannot serve lanes and leaves them to others: run `oncebox doctor` with its build and its role")

// rehearse finds out whether this process can serve lanes: before the first claim, and again after each failure of a
// loop. Without it, a process with a wrong role would count as alive, hold its share of the lanes, and fail at every
// statement on them.
func (c *Coordinator) rehearse(ctx context.Context) error {
	// Set before the rehearsal and not after it: a loop that fails meanwhile asks for another one, and that must not be
	// overwritten.
	if c.rehearsed.Swap(true) {
		return nil
	}
	err := c.answered(ctx, func(ctx context.Context) error {
		return c.leases.Rehearse(ctx, c.cfg.Name, c.cfg.Group, c.cfg.Lease)
	})
	if err != nil {
		c.rehearsed.Store(false)
	}
	if lanedb.IsMisfit(err) { // otherwise the database is away or its disk is full, and other projectors can do no more than this one
		return fmt.Errorf("%w: %w", errCannotServe, err)
	}
	return nil
}

// cutLeases shortens leases that end too far ahead because the clock of the database has gone back. If it fails, the
// next beat tries again.
func (c *Coordinator) cutLeases(ctx context.Context) {
	var cut int64
	err := c.answered(ctx, func(ctx context.Context) (err error) {
		cut, err = c.leases.CutLeases(ctx, c.cfg.Lease)
		return err
	})
	if err != nil || cut > 0 {
		c.log.WarnContext(ctx, "oncebox: the clock of the database was set back; leases of lanes that would last too long are shortened",
			"leases", cut, "error", err)
	}
}

// leave gives all lanes back if the database belongs to another deployment, or if this process cannot serve them. It
// also deletes the heartbeat, so that the other projectors share all lanes among themselves. After other errors it
// does nothing.
func (c *Coordinator) leave(ctx context.Context, why error) error {
	if !errors.Is(why, lanedb.ErrForeignDatabase) && !errors.Is(why, errCannotServe) {
		return nil
	}
	// The workers give the lanes back between two batches. Released here, a lane could be claimed by another projector
	// while this one still publishes from it.
	for _, w := range c.Workers {
		for range w.count() {
			w.giveBackOne()
		}
	}
	c.Nudge()
	return c.answered(ctx, func(ctx context.Context) error { return c.leases.Unregister(ctx, c.cfg.Name) })
}

// reportUnserved warns of groups without a projector when they have been the same for two heartbeats. A projector for them may
// be about to start.
func (c *Coordinator) reportUnserved(ctx context.Context, groups []int64) {
	if !slices.Equal(groups, c.unserved) {
		c.unserved, c.unservedBeats = groups, 0
	}
	if c.unservedBeats++; len(groups) > 0 && c.unservedBeats == 2 {
		c.log.WarnContext(ctx, "oncebox: no relay publishes these groups of lanes, so their events wait: start a relay for each group (ONCEBOX_OUTBOX_GROUP)",
			"groups", groups)
	}
}

// renew extends the leases. It passes the answer to the workers: which lanes are lost, and which ones an operator has
// changed. It returns how many lanes are held.
func (c *Coordinator) renew(ctx context.Context) (held int, err error) {
	var leases []lanedb.Lease
	for _, w := range c.Workers {
		leases = append(leases, w.Leases()...)
	}
	if len(leases) == 0 {
		return 0, nil
	}
	until := time.Now().Add(c.cfg.Lease) // before the statement is sent, see Coordinate
	var changes map[int16]int64
	err = c.answered(ctx, func(ctx context.Context) (err error) {
		changes, err = c.leases.Renew(ctx, leases, c.cfg.Lease)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, w := range c.Workers {
		held += w.renewed(until, changes)
	}
	if lost := len(leases) - len(changes); lost > 0 {
		c.fenced.Add(ctx, int64(lost))
		c.log.WarnContext(ctx, "oncebox: lanes were lost to another projector", "lanes", lost)
	}
	return held, nil
}

// claim takes up to n free lanes and gives them to the workers. The claim is committed when it returns. So the
// workers, which load position and blocks before their first fetch, see everything that the former owner wrote, and
// everything that it tries to write from now on is refused.
//
// A lane always goes to the worker of the same remainder, which spreads them about evenly.
func (c *Coordinator) claim(ctx context.Context, n int) error {
	until := time.Now().Add(c.cfg.Lease) // before the statement is sent, see Coordinate
	var leases []lanedb.Lease
	err := c.answered(ctx, func(ctx context.Context) (err error) {
		leases, err = c.leases.Claim(ctx, c.cfg.Name, c.cfg.Group, n, c.cfg.Lease)
		return err
	})
	c.isShort = len(leases) < n-1 // shares are rounded up, so one may be missing for good
	if err != nil || len(leases) == 0 {
		return err
	}
	for _, lease := range leases {
		w := c.Workers[int(lease.Lane)%len(c.Workers)]
		w.Add(lease, until)
	}
	c.log.InfoContext(ctx, "oncebox: lanes claimed; this projector now publishes the events of these parts of the outbox",
		"projector", c.cfg.Name, "lanes", len(leases))
	// The new lanes may have rows, and no notification will come for rows that were committed before the claim.
	c.Nudge()
	return nil
}

// markSurplus makes the workers give back n lanes, each from the worker that holds most.
func (c *Coordinator) markSurplus(n int) {
	// One by one, because each lane that is marked changes which worker holds most.
	for range n {
		most := c.Workers[0]
		for _, w := range c.Workers[1:] {
			if w.count() > most.count() {
				most = w
			}
		}
		most.giveBackOne()
	}
	c.Nudge()
}

// Nudge makes all workers look at all lanes.
func (c *Coordinator) Nudge() {
	for _, w := range c.Workers {
		w.Nudge()
	}
}

// readPauses asks which tenants are paused. It runs right before leases are renewed or claimed. Without an answer no
// lease is renewed or claimed, so a process that cannot read the pauses publishes for the length of its lease, and
// not longer.
func (c *Coordinator) readPauses(ctx context.Context) error {
	var list []lanedb.Pause
	err := c.answered(ctx, func(ctx context.Context) (err error) {
		list, err = c.leases.Pauses(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if c.Tenants.Set(list) {
		c.log.InfoContext(ctx, "oncebox: tenants are paused", "projector", c.cfg.Name, "tenants", c.Tenants.List())
		c.Nudge()
	}
	return nil
}

// Release releases all lanes and the heartbeat, so that other projectors need not wait for the leases to end.
func (c *Coordinator) Release(ctx context.Context) error {
	var leases []lanedb.Lease
	for _, w := range c.Workers {
		leases = append(leases, w.drop()...)
	}
	// The heartbeat goes first: while it is there, this projector has a share, and the others would not claim all lanes.
	err := c.leases.Unregister(ctx, c.cfg.Name)
	if len(leases) > 0 {
		err = errors.Join(err, c.leases.Release(ctx, leases))
	}
	return err
}
