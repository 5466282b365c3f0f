package inbox

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/backoff"
	leases "github.com/oncebox/oncebox/internal/lease"
)

// turn is how many messages of one key are handled before others get their turn.
const turn = 100

// shortestWait is the shortest pause between two rounds. It prevents a busy loop when keys are due that this process cannot take.
const shortestWait = 10 * time.Millisecond

// runner works on the keys that do not flow.
type runner struct {
	box *Inbox

	freed   chan struct{} // a token: a key was handed back or is done
	working sync.WaitGroup
	active  time.Time // when it was last noted that the consumers run
	noted   int       // how many of them

	mu   sync.Mutex
	keys map[store.ParkedKey]struct{} // the keys that this process works on, with Doubtful false
	busy map[string]int               // number of these keys, by consumer
}

// RunParked handles the parked messages of the consumers that were wrapped by this inbox, until ctx is done: each as soon as it is due,
// messages of one key one after the other. Any number of processes may call it. If none does, parked messages stay parked.
//
// When ctx is cancelled, handlers go on for up to [Config.DrainTimeout]. Errors of the database are logged and tried again. A consumer that
// belongs to another service is a [*messaging.SourceError], see [OwnedBy].
func (i *Inbox) RunParked(ctx context.Context) error {
	if err := i.process.InsistOnOwners(ctx); err != nil {
		return err
	}
	i.process.Pauses.Await(ctx)
	i.runners.Add(1)
	defer i.runners.Add(-1)
	r := &runner{
		box: i, freed: make(chan struct{}, 1), keys: map[store.ParkedKey]struct{}{}, busy: map[string]int{},
	}
	// Handlers outlive ctx by the drain time, so they get a context of their own.
	handling, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	go func() {
		<-ctx.Done()
		if backoff.Wait(handling, max(i.cfg.DrainTimeout, 0)) == nil {
			abandon()
		}
	}()
	var renewing sync.WaitGroup
	renewing.Go(func() { r.renew(handling) })
	renewing.Go(func() { r.box.process.Pauses.Follow(ctx) })
	renewing.Go(func() { r.box.state.Observe(ctx, r.box.consumers) })
	for failures := 0; ctx.Err() == nil; {
		wait, err := r.round(ctx, handling)
		if err != nil && ctx.Err() == nil {
			failures++
			wait = i.store.Pauses().Pause(failures)
			i.store.Log.WarnContext(ctx, "oncebox: parked messages could not be looked for, trying again", "pause", wait, "error", err)
		} else {
			failures = 0
		}
		r.wait(ctx, wait)
	}
	// Keys are renewed until the last handler has ended. Otherwise another process would take a key whose message still runs.
	r.working.Wait()
	abandon()
	renewing.Wait()
	return nil
}

// wait returns after d, or earlier if a key was handed back, a message was parked here, or ctx is done.
func (r *runner) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.freed:
	case <-r.box.woken:
	case <-ctx.Done():
	}
}

// round takes keys that are due, and returns how long to wait for the next ones. Each consumer has its own limit of keys, so that a
// consumer whose handlers hang delays no other.
func (r *runner) round(ctx, handling context.Context) (time.Duration, error) {
	if err := r.lookAtModels(ctx); err != nil {
		return 0, err
	}
	consumers := r.box.consumers()
	if err := r.beat(ctx, consumers); err != nil {
		return 0, err
	}
	consumers = slices.DeleteFunc(consumers, func(consumer string) bool { return r.free(consumer) == 0 })
	if len(consumers) == 0 {
		return r.box.cfg.PollInterval, nil
	}
	// NextDue comes before Claim, so that no key is missed: a key that becomes due in between is claimed, and a key that becomes due later
	// ends the wait.
	asked := time.Now()
	next, err := r.box.table.Keys.NextDue(ctx, consumers, r.box.cfg.PollInterval)
	if err != nil {
		return 0, err
	}
	for _, consumer := range consumers {
		keys, err := r.box.table.Keys.Claim(ctx, consumer, r.free(consumer), r.box.topicsOf(consumer))
		if err != nil {
			return 0, err
		}
		for _, k := range keys {
			r.start(handling, ctx.Done(), k)
		}
	}
	return max(next-time.Since(asked), shortestWait), nil
}

// free returns how many more keys of a consumer this process may take: none if a pause began while it works on some.
func (r *runner) free(consumer string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.box.process.AtOnce(consumer, r.box.cfg.ParkedConcurrency)-r.busy[consumer], 0)
}

// start works on a key in a goroutine of its own.
func (r *runner) start(ctx context.Context, stop <-chan struct{}, k store.ParkedKey) {
	// Doubtful does not belong to the identity: the same key is renewed and counted whether its first message is doubtful or not.
	plain := store.ParkedKey{Consumer: k.Consumer, Lock: k.Lock}
	r.mu.Lock()
	r.keys[plain] = struct{}{}
	r.busy[k.Consumer]++
	r.mu.Unlock()
	r.working.Go(func() {
		defer r.done(plain)
		if err := r.work(ctx, stop, k); err != nil {
			r.box.store.Log.WarnContext(ctx, "oncebox: parked messages of a key wait for another turn", "consumer", k.Consumer, "error", err)
		}
	})
}

// done makes room for another key.
func (r *runner) done(k store.ParkedKey) {
	r.mu.Lock()
	delete(r.keys, k)
	if r.busy[k.Consumer]--; r.busy[k.Consumer] == 0 {
		delete(r.busy, k.Consumer)
	}
	r.mu.Unlock()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// work handles the messages of a key until one fails, none is left, or turn messages were handled, so that other keys get their turn.
func (r *runner) work(ctx context.Context, stop <-chan struct{}, k store.ParkedKey) error {
	for range turn {
		select {
		case <-stop:
			return r.box.table.Keys.HandBack(ctx, k, 0)
		default:
		}
		if r.box.process.IsPaused(k.Consumer) {
			return r.box.table.Keys.HandBack(ctx, k, 0)
		}
		if became, err := (&head{box: r.box, key: k}).run(ctx); err != nil || became != ranMore {
			return err
		}
		k.Doubtful = false
	}
	return r.box.table.Keys.HandBack(ctx, k, 0)
}

// renew extends the ownership of all keys that this process works on, with one statement. No handler is cancelled when a key is lost: its
// message is handled in the transaction that removes it, and its row is locked meanwhile.
func (r *runner) renew(ctx context.Context) {
	leases.Repeat(ctx, time.Now(), r.box.cfg.ParkedLease, func(ctx context.Context) error {
		r.mu.Lock()
		keys := slices.Collect(maps.Keys(r.keys))
		r.mu.Unlock()
		if len(keys) == 0 {
			return nil
		}
		return r.box.table.Keys.Renew(ctx, keys)
	}, func(err error) {
		r.box.store.Log.WarnContext(ctx, "oncebox: keys of parked messages could not be renewed, it is tried again", "error", err)
	})
}

// beat notes, once a minute, that this process runs its consumers and handles their topics, and looks for topics that no process handles.
func (r *runner) beat(ctx context.Context, consumers []string) error {
	now := time.Now()
	consumers = slices.DeleteFunc(slices.Clone(consumers), r.box.process.IsUnowned)
	if len(consumers) == 0 || now.Sub(r.active) <= time.Minute && len(consumers) == r.noted {
		return nil
	}
	of, topics := r.box.handled()
	absent, err := r.box.state.Beat(ctx, consumers, of, topics)
	if err != nil {
		return err
	}
	r.active, r.noted = now, len(consumers)
	for _, a := range absent {
		r.box.store.Log.WarnContext(ctx, "oncebox: messages are parked whose topic no process handles: start a process that has this consumer on it",
			"consumer", a.Consumer, "topic", a.Topic, "since", a.Since)
	}
	return nil
}
