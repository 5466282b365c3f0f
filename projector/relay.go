package projector

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/leader"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/outbox"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// relay serves one store. Its goroutines are a coordinator, which holds the leases; the workers, which publish; a
// listener, which receives the notifications of other processes; a cleaner, which makes and drops partitions; and an
// observer, which reads the state for the metrics.
type relay struct {
	p       *Projector
	store   *outbox.Store
	lanes   lanedb.Lanes
	workers []*worker
	mark    watermark
	topics  pausedTopics
	tenants pausedTenants
	kept    pulse
	failure failure
	state   *leader.Reader[outboxstate.Stats] // for the metrics
	freed   chan struct{}                     // has a token when lanes were handed back: the next beat comes at once
	hears   atomic.Bool                       // the connection for NOTIFY is up, so commits of all processes wake the workers
	// rehearsed is true if the statements that serve lanes succeeded, and nothing has failed since.
	rehearsed atomic.Bool

	alone sync.Mutex   // held while rows are sent that may kill the process
	seed  maphash.Seed // of the hashes of ordering keys

	lateScan sync.Mutex // held while one worker looks for the rows that a shortcut has left behind
	latest   lateRows   // the result of the last such scan

	// The fields from here on belong to the coordinator.
	unserved      []int64       // groups that had no projector at the last beat
	unservedBeats int           // the number of beats for which they have been the same
	noted         time.Time     // the time of the last failure that was written down
	short         bool          // other projectors have lanes of this relay's share
	nextFree      time.Duration // until a lane of another projector may be free, as of the last beat
}

func newRelay(p *Projector, s *outbox.Store) *relay {
	r := &relay{p: p, store: s, lanes: lanedb.Of(s.Handle()), seed: maphash.MakeSeed(), freed: make(chan struct{}, 1)}
	r.topics.pause = p.pauses.topic
	r.mark.patience = p.pauses.shortcut
	r.state = &leader.Reader[outboxstate.Stats]{
		Name: "outbox.stats", SQL: s.Handle().Run, DB: s.Handle().DB, Log: p.log, Read: s.State().Stats, Interval: p.pauses.observe,
	}
	for range p.cfg.Workers {
		r.workers = append(r.workers, &worker{r: r, lanes: map[int16]*lane{}, wake: make(chan struct{}, 1)})
	}
	return r
}

// wake makes the workers look at all lanes.
func (r *relay) wake() { r.hear(outboxdb.AllLanes) }

// hear makes the workers of these lanes look at them. A store calls it after each commit of this process, and the
// listener after each notification of another one.
func (r *relay) hear(lanes outboxdb.LaneSet) {
	for _, w := range r.workers {
		w.hear(lanes)
	}
}

// run starts all goroutines and waits for them. Each of them goes on through failures and ends with ctx only, see
// supervise. The lanes are handed back last, when no worker can write to them any more.
func (r *relay) run(ctx context.Context) error {
	r.ensurePartitions(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return r.supervise(ctx, "observer", 0, func(ctx context.Context) error { r.state.Run(ctx); return nil })
	})
	group.Go(func() error { return r.supervise(ctx, "lease coordinator", 0, r.beat) })
	for i, w := range r.workers {
		group.Go(func() error { return r.supervise(ctx, fmt.Sprintf("worker %d", i), 0, w.turn) })
	}
	group.Go(func() error { return r.supervise(ctx, "listener", relistenPause, r.listen) })
	if r.p.cfg.CleanInterval > 0 {
		group.Go(func() error { return r.supervise(ctx, "cleaner", r.p.cfg.CleanInterval, r.clean) })
	}
	err := group.Wait()
	r.handBack(context.WithoutCancel(ctx))
	return err
}

// isolated ends a time in which one worker sent rows that had been in flight. Another worker that wanted to do the
// same meanwhile has left its rows where they are, see isolate. So all workers look again.
func (r *relay) isolated() {
	r.alone.Unlock()
	r.wake()
}

// bounded limits statements to the length of a lease. A server that vanishes together with its machine closes no
// connection: without a limit, a statement would wait about a quarter of an hour for its answer, and other projectors
// own the lanes by then.
func (r *relay) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.p.cfg.Lease)
}

// begun is bounded for work that must be finished even if the program is stopped. A statement that is cancelled may
// be carried out all the same, after the lanes were handed back. A claim that comes through so late would leave a
// lane with a projector that is gone.
func (r *relay) begun(ctx context.Context) (context.Context, context.CancelFunc) {
	return r.bounded(context.WithoutCancel(ctx))
}

// ping asks the store for an answer within the length of a lease. A server that takes the question and never answers
// it gets an error of its own, which says where to look.
func (r *relay) ping(ctx context.Context) error {
	bounded, cancel := r.bounded(ctx)
	defer cancel()
	err := r.store.Ping(bounded)
	switch {
	case err != nil && ctx.Err() == nil && bounded.Err() != nil:
		return fmt.Errorf("projector: start: the database has not answered for %s: look whether it hangs, whether it can be reached, "+
			"and whether the pool has a connection left: %w", r.p.cfg.Lease, err)
	case err != nil:
		return fmt.Errorf("projector: start: %w", err)
	}
	return nil
}

// away reports whether an error means that a database could not be asked, so that waiting may help. An error that the
// database has answered does not go away by waiting.
func away(err error) bool {
	_, unconnected := errors.AsType[*pgconn.ConnectError](err)
	return unconnected || pgerr.IsConnectionError(err) || errors.Is(err, context.DeadlineExceeded)
}

// ensurePartitions makes the partition of today before the first settle. Without it rows go to the DEFAULT partition,
// and have to be moved when the right one is made. Nothing else depends on it, so a failure is only logged:
// somebody's long read of the table, which keeps the statement waiting, must not stop the relay.
func (r *relay) ensurePartitions(ctx context.Context) {
	bounded, cancel := r.bounded(ctx)
	defer cancel()
	if err := r.store.EnsurePartitions(bounded); err != nil && ctx.Err() == nil {
		r.p.log.WarnContext(ctx, "oncebox: partitions could not be made, rows of a day without one go to the default one", "error", err)
	}
}

// clean reconciles the lanes first. The cleaning after it may take hours, because a day may be archived before it is
// dropped.
func (r *relay) clean(ctx context.Context) error {
	_, err := r.store.Reconcile(ctx)
	return errors.Join(err, r.store.Clean(ctx))
}

// runOnce makes the workers pass, one after another, until none of them has moved a row. Before each pass it forgets
// the times at which held rows become due and the lanes that were empty, because there is no listener that would
// report a change.
func (r *relay) runOnce(ctx context.Context) error {
	defer r.handBack(context.WithoutCancel(ctx))
	r.ensurePartitions(ctx)
	renewed := time.Time{}
	for ctx.Err() == nil {
		if time.Since(renewed) >= r.p.cfg.Renew {
			renewed = time.Now()
			if err := r.coordinate(ctx); err != nil {
				return err
			}
		}
		moved := 0
		for _, w := range r.workers {
			w.due = dueTime{}
			w.nudge()
			n, err := w.pass(ctx)
			if err != nil {
				return err
			}
			moved += n
		}
		if moved == 0 {
			return nil
		}
	}
	return ctx.Err()
}

// supervise calls step again and again until ctx is done. A step that fails or panics is logged and tried again after
// a pause. Nothing but ctx ends the loop: from outside, a relay that stopped silently could not be distinguished from
// a relay without work.
//
// Every failure also asks for a new rehearsal: the tables or the rights of the role may have changed.
func (r *relay) supervise(ctx context.Context, name string, every time.Duration, step func(context.Context) error) error {
	failures := 0
	for ctx.Err() == nil {
		pause := every
		if err := guard(ctx, step); err != nil && ctx.Err() == nil {
			failures++
			r.rehearsed.Store(false)
			pause = r.p.pauses.loop.Pause(failures)
			r.p.log.WarnContext(ctx, "oncebox: projector "+name+" failed, trying again", "error", err, "pause", pause, "failures", failures)
		} else {
			failures = 0
		}
		_ = backoff.Wait(ctx, pause) // the loop looks at ctx
	}
	return nil
}

// guard calls step and turns a panic into an error: a bug in one loop, or in the publisher, must not end the process
// of the application.
func guard(ctx context.Context, step func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("projector: panic: %v\n%s", v, debug.Stack())
		}
	}()
	return step(ctx)
}

// handBack releases every lane, so that other projectors need not wait for the leases to end.
//
// It runs after the last pass, in this order: a probe that is on its way is awaited and recorded; rows that were
// published but not settled are settled; then the lanes are released. A lane that is released first could be claimed
// by another projector, which would publish the unsettled rows once more.
func (r *relay) handBack(ctx context.Context) {
	for _, w := range r.workers {
		w.awaitProbe(ctx)
	}
	settling, cancel := context.WithTimeout(ctx, r.p.cfg.PublishTimeout)
	defer cancel()
	var leases []lanedb.Lease
	for _, w := range r.workers {
		w.settleLast(settling)
		leases = append(leases, w.drop()...)
	}
	// A new limit: a settle that hung has used up the first one, and the lanes must be released all the same.
	ctx, stop := context.WithTimeout(ctx, r.p.cfg.PublishTimeout)
	defer stop()
	err := r.lanes.Leases.Unregister(ctx, r.p.cfg.Name)
	if len(leases) > 0 {
		err = errors.Join(err, r.lanes.Leases.Release(ctx, leases))
	}
	if err != nil {
		r.p.log.WarnContext(ctx, "oncebox: lanes were not handed back, they are free when their leases end", "error", err)
	}
}
