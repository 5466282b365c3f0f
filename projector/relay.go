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
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/outbox"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
)

// relay serves one store: a coordinator that holds leases, workers that publish, and a cleaner that keeps the tables in order.
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
	freed   chan struct{}                     // lanes were handed back: beat now
	hears   atomic.Bool                       // of commits: of those in this process and, by NOTIFY, of others
	// Whether the statements that serve lanes went well before, and nothing has failed since.
	rehearsed atomic.Bool

	alone sync.Mutex // held while rows are sent that may kill the process
	seed  maphash.Seed

	lateScan sync.Mutex // held while one worker looks for what a shortcut has left behind
	latest   lateRows   // what was found last

	// These belong to the coordinator.
	unserved      []int64
	unservedBeats int
	noted         time.Time     // when what failed was written down last
	short         bool          // others have lanes of this relay's share
	nextFree      time.Duration // until a lane of somebody else may be free, as of the last beat
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

// wake has all lanes looked at.
func (r *relay) wake() { r.hear(outboxdb.AllLanes) }

// hear has the workers of these lanes look at them.
func (r *relay) hear(lanes outboxdb.LaneSet) {
	for _, w := range r.workers {
		w.hear(lanes)
	}
}

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

// isolated ends a time in which one worker sent what was in flight. Others may have had to leave theirs.
func (r *relay) isolated() {
	r.alone.Unlock()
	r.wake()
}

// bounded is for statements that must not wait for ever. A server that vanishes without a word, as with its machine, leaves
// connections on which an answer is waited for a quarter of an hour; others have the lanes by then.
func (r *relay) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, r.p.cfg.Lease)
}

// begun is for what is not broken off when the program is told to stop. A statement that nobody waits for any more may
// be carried out all the same, after the lanes were handed back: they would wait for a projector that is gone.
func (r *relay) begun(ctx context.Context) (context.Context, context.CancelFunc) {
	return r.bounded(context.WithoutCancel(ctx))
}

// ping says what to do if a server takes the question and never answers it.
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

// away tells whether a database could not be asked. What it answered, if it was asked, does not mend itself.
func away(err error) bool {
	_, unconnected := errors.AsType[*pgconn.ConnectError](err)
	return unconnected || pgsql.IsConnectionError(err) || errors.Is(err, context.DeadlineExceeded)
}

// ensurePartitions makes the child of today before the first settle. Without it rows go to the DEFAULT child, and have to be
// moved when the child is made. Nothing else depends on it: a long read of the table must not stop the relay.
func (r *relay) ensurePartitions(ctx context.Context) {
	bounded, cancel := r.bounded(ctx)
	defer cancel()
	if err := r.store.EnsurePartitions(bounded); err != nil && ctx.Err() == nil {
		r.p.log.WarnContext(ctx, "oncebox: partitions could not be made, rows of a day without one go to the default one", "error", err)
	}
}

// clean reconciles first: to archive a day before it is dropped may take hours.
func (r *relay) clean(ctx context.Context) error {
	_, err := r.store.Reconcile(ctx)
	return errors.Join(err, r.store.Clean(ctx))
}

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

// supervise calls step again and again until ctx is done. A step that fails or panics is logged and tried again after a
// pause; nothing but ctx ends the loop, because a relay that has stopped without a word looks like one with no work.
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

func guard(ctx context.Context, step func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("projector: panic: %v\n%s", v, debug.Stack())
		}
	}()
	return step(ctx)
}

// handBack releases every lane, so that the others need not wait for the leases to end.
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
	// Anew: a settle that hangs must not keep the lanes from the others.
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
