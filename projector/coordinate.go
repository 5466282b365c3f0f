package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
)

// leaseEnd is the time that is added to the end of a lease, so that the other leases of the same owner have ended
// too. One statement renews all of them, but a moment apart.
const leaseEnd = 50 * time.Millisecond

// beat calls coordinate once, and waits until it is time for the next call. That is Config.Renew, but less in three cases, so that free
// lanes are taken at once: the lease of another projector ends earlier; another projector hands lanes back; or others have lanes
// of this relay's share and it cannot hear of lanes that are handed back.
func (r *relay) beat(ctx context.Context) error {
	r.short = false
	if err := r.kept.after(r.coordinate)(ctx); err != nil {
		return err
	}
	pause := r.p.cfg.Renew
	if r.nextFree > 0 {
		pause = min(pause, r.nextFree+leaseEnd)
	}
	if r.short && !r.hears.Load() {
		pause = min(pause, r.p.cfg.SleepBusy)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.freed:
	case <-ctx.Done():
	}
	return nil
}

// hurry makes the next beat come at once.
func (r *relay) hurry() {
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// coordinate renews the leases and takes or gives back lanes, so that all projectors that are alive have equal shares.
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
func (r *relay) coordinate(ctx context.Context) error {
	// Before the heartbeat: a projector that is alive has a share of the lanes, and this one would leave its share unserved.
	if err := r.answered(ctx, r.lanes.Leases.CheckOwner); err != nil {
		return errors.Join(err, r.leave(ctx, err))
	}
	if err := r.rehearse(ctx); err != nil {
		return errors.Join(err, r.leave(ctx, err))
	}
	all, err := r.heartbeat(ctx)
	if err != nil {
		return err
	}
	r.nextFree = all.NextFree
	if err := r.noteFailure(ctx); err != nil {
		return err
	}
	if all.FarAhead {
		r.cutLeases(ctx)
	}
	r.reportUnserved(ctx, all.Unserved)
	if err := r.readPauses(ctx); err != nil {
		return err
	}
	held, err := r.renew(ctx)
	if err != nil {
		return err
	}
	share := (all.Lanes + all.Alive - 1) / all.Alive
	switch {
	case held < share:
		return r.claim(ctx, share-held)
	case held > share:
		r.markSurplus(held - share)
	}
	return nil
}

// answered calls fn, which sends one statement of the coordinator. The statement is not cancelled when the program is
// stopped, see begun.
func (r *relay) answered(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.p.cfg.Lease/3)
	defer cancel()
	return fn(ctx)
}

func (r *relay) heartbeat(ctx context.Context) (all lanedb.Membership, err error) {
	cfg := &r.p.cfg
	err = r.answered(ctx, func(ctx context.Context) (err error) {
		all, err = r.lanes.Leases.Heartbeat(ctx, cfg.Name, cfg.Group, cfg.Lease)
		return err
	})
	return all, err
}

// noteFailure stores the reason why the broker has taken nothing since the last beat. An operator looks for it if the
// broker is away for this process alone.
func (r *relay) noteFailure(ctx context.Context) error {
	reason, at, ok := r.failure.since(r.noted)
	if !ok {
		return nil
	}
	err := r.answered(ctx, func(ctx context.Context) error {
		return r.lanes.Leases.NoteFailure(ctx, r.p.cfg.Name, reason, time.Since(at))
	})
	if err == nil {
		r.noted = at
	}
	return err
}

// errCannotServe is the error of a projector that leaves the lanes to others, because its build or its role does not
// fit the tables.
var errCannotServe = errors.New("projector: this process cannot serve lanes and leaves them to others: run `oncebox doctor` with its build and its role")

// rehearse finds out whether this process can serve lanes: before the first claim, and again after each failure of a
// loop. Without it, a process with a wrong role would count as alive, hold its share of the lanes, and fail at every
// statement on them.
func (r *relay) rehearse(ctx context.Context) error {
	if r.rehearsed.Swap(true) {
		return nil
	}
	err := r.answered(ctx, func(ctx context.Context) error {
		return r.lanes.Leases.Rehearse(ctx, r.p.cfg.Name, r.p.cfg.Group, r.p.cfg.Lease)
	})
	if err != nil {
		r.rehearsed.Store(false)
	}
	if lanedb.IsMisfit(err) { // otherwise the database is away or its disk is full, and other projectors can do no more than this one
		return fmt.Errorf("%w: %w", errCannotServe, err)
	}
	return nil
}

// cutLeases shortens leases that end too far ahead because the clock of the database has gone back. If it fails, the
// next beat tries again.
func (r *relay) cutLeases(ctx context.Context) {
	var cut int64
	err := r.answered(ctx, func(ctx context.Context) (err error) {
		cut, err = r.lanes.Leases.CutLeases(ctx, r.p.cfg.Lease)
		return err
	})
	if err != nil || cut > 0 {
		r.p.log.WarnContext(ctx, "oncebox: the clock of the database has gone back, leases that would have lasted for longer are cut",
			"leases", cut, "error", err)
	}
}

// leave gives all lanes back if the database belongs to another deployment, or if this process cannot serve them. It
// also deletes the heartbeat, so that the other projectors share all lanes among themselves. After other errors it
// does nothing.
func (r *relay) leave(ctx context.Context, why error) error {
	if !errors.Is(why, lanedb.ErrForeignDatabase) && !errors.Is(why, errCannotServe) {
		return nil
	}
	for _, w := range r.workers {
		for range w.count() {
			w.giveBackOne()
		}
	}
	r.wake()
	return r.answered(ctx, func(ctx context.Context) error { return r.lanes.Leases.Unregister(ctx, r.p.cfg.Name) })
}

// reportUnserved warns of groups without a projector when they have been the same for two heartbeats. A projector for them may
// be about to start.
func (r *relay) reportUnserved(ctx context.Context, groups []int64) {
	if !slices.Equal(groups, r.unserved) {
		r.unserved, r.unservedBeats = groups, 0
	}
	if r.unservedBeats++; len(groups) > 0 && r.unservedBeats == 2 {
		r.p.log.WarnContext(ctx, "oncebox: no projector serves these groups, their events wait", "groups", groups)
	}
}

// renew extends the leases. It passes the answer to the workers: which lanes are lost, and which ones an operator has
// changed. It returns how many lanes are held.
func (r *relay) renew(ctx context.Context) (held int, err error) {
	var leases []lanedb.Lease
	for _, w := range r.workers {
		leases = append(leases, w.leases()...)
	}
	if len(leases) == 0 {
		return 0, nil
	}
	until := time.Now().Add(r.p.cfg.Lease)
	var changes map[int16]int64
	err = r.answered(ctx, func(ctx context.Context) (err error) {
		changes, err = r.lanes.Leases.Renew(ctx, leases, r.p.cfg.Lease)
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, w := range r.workers {
		held += w.renewed(until, changes)
	}
	if lost := len(leases) - len(changes); lost > 0 {
		r.p.telemetry.fenced.Add(ctx, int64(lost))
		r.p.log.WarnContext(ctx, "oncebox: lanes were lost to another projector", "lanes", lost)
	}
	return held, nil
}

// claim takes up to n free lanes and gives them to the workers. The claim is committed when it returns. So the
// workers, which load position and blocks before their first fetch, see everything that the former owner wrote, and
// everything that it tries to write from now on is refused.
//
// A lane always goes to the worker of the same remainder, which spreads them about evenly.
func (r *relay) claim(ctx context.Context, n int) error {
	until := time.Now().Add(r.p.cfg.Lease)
	var leases []lanedb.Lease
	err := r.answered(ctx, func(ctx context.Context) (err error) {
		leases, err = r.lanes.Leases.Claim(ctx, r.p.cfg.Name, r.p.cfg.Group, n, r.p.cfg.Lease)
		return err
	})
	r.short = len(leases) < n-1 // shares are rounded up, so one may be missing for good
	if err != nil || len(leases) == 0 {
		return err
	}
	for _, lease := range leases {
		w := r.workers[int(lease.Lane)%len(r.workers)]
		w.take(newLane(lease, until))
	}
	r.p.log.InfoContext(ctx, "oncebox: lanes claimed", "projector", r.p.cfg.Name, "lanes", len(leases))
	r.wake()
	return nil
}

// markSurplus makes the workers give back n lanes, each from the worker that holds most.
func (r *relay) markSurplus(n int) {
	for range n {
		most := r.workers[0]
		for _, w := range r.workers[1:] {
			if w.count() > most.count() {
				most = w
			}
		}
		most.giveBackOne()
	}
	r.wake()
}
