package projector

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"sync"
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
	"github.com/oncebox/oncebox/projector/internal/leases"
	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// relay serves one store. Its goroutines are a coordinator, which holds the leases; the workers, which publish; a
// listener, which receives the notifications of other processes; a cleaner, which makes and drops partitions; and an
// observer, which reads the state for the metrics.
type relay struct {
	p       *Projector
	store   *outbox.Store
	lanes   lanedb.Lanes
	workers []*worker
	leases  *leases.Coordinator
	kept    pulse // of the coordinator
	mark    *mark
	topics  *schedule.Topics
	state   *leader.Reader[outboxstate.Stats] // for the metrics
	limit   limit
}

func newRelay(p *Projector, s *outbox.Store) *relay {
	r := &relay{p: p, store: s, lanes: lanedb.Of(s.Handle()), topics: &schedule.Topics{Pause: p.pauses.topic}, limit: limit(p.cfg.Lease)}
	r.mark = &mark{log: r.lanes.Log, numbers: progress.Watermark{Patience: p.pauses.shortcut}}
	r.state = &leader.Reader[outboxstate.Stats]{
		Name: "outbox.stats", SQL: s.Handle().Run, DB: s.Handle().DB, Log: p.log, Read: outboxstate.NewKeeper(s.State()).Read, Interval: p.pauses.observe,
	}
	// The margin: a batch must begin so early that the broker's answer and the settle come before the lease ends.
	r.leases = leases.New(leases.Settings{
		Name: p.cfg.Name, Group: p.cfg.Group, Lease: p.cfg.Lease, Renew: p.cfg.Renew, SleepBusy: p.cfg.SleepBusy,
	}, r.lanes.Leases, p.cfg.Workers, p.cfg.PublishTimeout+settleMargin, p.log, p.telemetry.Fenced)
	shared := &shared{seed: maphash.MakeSeed(), scan: &lateScan{log: r.lanes.Log, mark: r.mark, workers: r.leases.Workers}}
	for _, lanes := range r.leases.Workers {
		r.workers = append(r.workers, newWorker(r, lanes, shared))
	}
	return r
}

// shared is what the workers of a relay share, besides the mark, the topics and the tenants.
type shared struct {
	alone sync.Mutex   // held while rows are sent that may kill the process
	seed  maphash.Seed // of the hashes of ordering keys
	scan  *lateScan
}

// newWorker puts the parts of a worker together. Each worker has its own Silence: workers have different lanes, so one
// of them may get answers while another one gets none. Topics and tenants are those of the relay, so that all workers
// leave the same ones alone.
func newWorker(r *relay, lanes *leases.Owned, all *shared) *worker {
	p, db, tenants := r.p, r.lanes, &r.leases.Tenants
	cfg, by, bytes := &p.cfg, p.cfg.rules(), p.cfg.batchBytes()
	at, quiet, due := &server{mark: r.mark, nudge: lanes.Nudge}, &schedule.Silence{}, &schedule.DueTime{}
	publish := &publisher{
		pub: p.pub, owned: lanes, topics: r.topics, tenants: tenants, silence: quiet, failure: &r.leases.Failure, timeout: cfg.PublishTimeout,
		silent: p.pauses.silent, telemetry: p.telemetry, tracer: p.tracer, log: p.log,
	}
	settle := &settler{
		db: db, keeps: r.store.Handle().Keeps, owned: lanes, server: at, due: due, rules: by, limit: r.limit, telemetry: p.telemetry, log: p.log,
	}
	fetch := &fetcher{db: db, mark: r.mark, settle: settle, silence: quiet, size: cfg.BatchSize, bytes: bytes}
	queues := &queues{db: db, owned: lanes, settle: settle, rules: by, telemetry: p.telemetry}
	isolate := &isolator{
		db: db, alone: &all.alone, wakeAll: r.leases.Nudge, owned: lanes, publish: publish, settle: settle, queues: queues, rules: by,
	}
	send := &sender{fetch: fetch, publish: publish, settle: settle, isolate: isolate, rules: by}
	search := &searcher{
		db: db, server: at, owned: lanes, send: send, topics: r.topics, tenants: tenants, silence: quiet, rules: by, limit: r.limit,
		size: cfg.BatchSize, seed: all.seed,
	}
	return &worker{
		cfg: cfg, db: db, hears: &r.leases.Hears, limit: r.limit, log: p.log, owned: lanes, server: at, silence: quiet,
		send: send, settle: settle, search: search,
		prober: &prober{
			db: db, server: at, owned: lanes, topics: r.topics, pass: search, fetch: fetch, publish: publish, settle: settle, queues: queues,
			isolate: isolate, rules: by, limit: r.limit, log: p.log,
		},
		held: &heldRows{
			db: db, owned: lanes, stay: search, publish: publish, settle: settle, queues: queues, isolate: isolate, limit: r.limit, bytes: bytes, due: due,
		},
		late: &catchUp{scan: all.scan, send: send, limit: r.limit},
	}
}

// wake makes the workers look at all lanes.
func (r *relay) wake() { r.hear(outboxdb.AllLanes) }

// hear makes the workers of these lanes look at them. A store calls it after each commit of this process, and the
// listener after each notification of another one.
func (r *relay) hear(lanes outboxdb.LaneSet) {
	for _, w := range r.workers {
		w.owned.Hear(lanes)
	}
}

// run starts all goroutines and waits for them. Each of them goes on through failures and ends with ctx only, see
// supervise. The lanes are handed back last, when no worker can write to them any more.
func (r *relay) run(ctx context.Context) error {
	r.ensurePartitions(ctx)
	// Each has a goroutine of its own, so that none waits for another: a worker that hangs in the broker must not keep
	// the coordinator from renewing, and a clean that takes hours must not keep anybody.
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

// beat renews the leases once, and waits until it is time for the next beat.
func (r *relay) beat(ctx context.Context) error {
	if err := r.leases.Coordinate(ctx); err != nil {
		return err
	}
	r.kept.mark()
	r.leases.Rest(ctx)
	return nil
}

// ping asks the store for an answer within the length of a lease. A server that takes the question and never answers
// it gets an error of its own, which says where to look.
func (r *relay) ping(ctx context.Context) error {
	bounded, cancel := r.limit.bounded(ctx)
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
	bounded, cancel := r.limit.bounded(ctx)
	defer cancel()
	if err := r.store.Upkeep().EnsurePartitions(bounded); err != nil && ctx.Err() == nil {
		r.p.log.WarnContext(ctx, "oncebox: partitions could not be made, rows of a day without one go to the default one", "error", err)
	}
}

// clean reconciles the lanes first. The cleaning after it may take hours, because a day may be archived before it is
// dropped.
func (r *relay) clean(ctx context.Context) error {
	_, err := r.store.Upkeep().Reconcile(ctx)
	return errors.Join(err, r.store.Clean(ctx))
}

// runOnce makes the workers pass, one after another, until none of them has moved a row. Before each pass it forgets
// the times at which held rows become due and the lanes that were empty, because there is no listener that would
// report a change.
func (r *relay) runOnce(ctx context.Context) error {
	defer r.handBack(context.WithoutCancel(ctx))
	r.ensurePartitions(ctx)
	// There is no coordinator beside the passes, so the leases are renewed between them.
	renewed := time.Time{}
	for ctx.Err() == nil {
		if time.Since(renewed) >= r.p.cfg.Renew {
			renewed = time.Now()
			if err := r.leases.Coordinate(ctx); err != nil {
				return err
			}
		}
		moved := 0
		for _, w := range r.workers {
			*w.held.due = schedule.DueTime{}
			w.owned.Nudge()
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
			r.leases.RehearseAnew()
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
		w.prober.awaitProbe(ctx)
	}
	settling, cancel := context.WithTimeout(ctx, r.p.cfg.PublishTimeout)
	defer cancel()
	for _, w := range r.workers {
		w.settle.settleLast(settling)
	}
	// A new limit: a settle that hung has used up the first one, and the lanes must be released all the same.
	ctx, stop := context.WithTimeout(ctx, r.p.cfg.PublishTimeout)
	defer stop()
	err := r.leases.Release(ctx)
	if err != nil {
		r.p.log.WarnContext(ctx, "oncebox: the relay stops and could not release its lanes; other relays can take them when their leases end", "error", err)
	}
}

// relistenPause is the pause between the loss of a listening connection and the first attempt to open another one. It
// also bounds the attempts on a server that accepts connections and drops them at once.
const relistenPause = 100 * time.Millisecond

// listen wakes the workers when another process has committed events, and the coordinator when another process has
// handed lanes back. It returns when the connection is lost. Nothing depends on it: it only saves the time to the
// next poll or beat.
func (r *relay) listen(ctx context.Context) error {
	listened := false
	err := r.store.Handle().Listen(ctx, func(lanes outboxdb.LaneSet) {
		listened = true
		r.leases.Hears.Store(true)
		r.hear(lanes)
	}, r.leases.Hurry)
	r.leases.Hears.Store(false)
	switch {
	case errors.Is(err, outboxdb.ErrCannotListen):
		// Through a pooler, with Config.PollOnly, or without pgx. Another attempt would fail as this one did, so the loop
		// rests until the end, and the workers poll.
		<-ctx.Done()
		return nil
	case err != nil && listened:
		// The connection had worked, so this does not count as a failed attempt: the pauses begin at the shortest
		// again.
		r.p.log.WarnContext(ctx, "oncebox: the database connection on which the relay waits for notifications was lost; it opens another", "error", err)
		return nil
	default:
		return err
	}
}
