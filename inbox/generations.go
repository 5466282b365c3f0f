package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/messaging"
)

// Generations holds the handlers of a read model. Each rebuild of the read model begins a new generation, with its own handler. Programs
// use it through package readmodel. It is the [messaging.BatchHandler] that the consumer of the read model runs, on any number of topics
// and in any number of processes.
//
// The inbox has one consumer for each generation, named "balances" at first, then "balances@1" and so on. Parked messages and dead letters
// carry this name. [Inbox.Await] takes the name of the read model.
type Generations struct {
	box  *Inbox
	name string
	next messaging.Handler
	opts []Option
	// elsewhere says that other processes run the handlers, and this one only stores messages for them.
	elsewhere bool

	mu      sync.Mutex
	current *Generation
}

// Generation is a generation of a read model, as this process knows it.
type Generation struct {
	// Number is how many generations came before it, and Consumer is its name in the inbox.
	Number   int64
	Consumer string

	live, replayed *wrapped
	seen           time.Time
}

const (
	enrollModel = `INSERT INTO {schema}.inbox_read_model (name) VALUES ($1) ON CONFLICT DO NOTHING`

	readGeneration = `SELECT generation FROM {schema}.inbox_read_model WHERE name = $1`
)

// Name returns the name of the read model.
func (g *Generations) Name() string { return g.name }

// Handle handles a live message. While the read model is being rebuilt, it stores the message until the rebuild has ended.
func (g *Generations) Handle(ctx context.Context, m *messaging.Message) error {
	return g.within(ctx, func(n *Generation) error { return n.live.Handle(ctx, m) })
}

// HandleBatch is Handle for several messages.
func (g *Generations) HandleBatch(ctx context.Context, msgs []*messaging.Message) error {
	return g.within(ctx, func(n *Generation) error { return n.live.HandleBatch(ctx, msgs) })
}

// within calls fn with the generation that this process knows. If another generation has begun meanwhile, it calls fn again with that one.
func (g *Generations) within(ctx context.Context, fn func(*Generation) error) error {
	// A transaction of another generation ends with ErrGeneration and has changed nothing, so fn may be called again.
	n, err := g.look(ctx, false)
	for err == nil {
		if err = fn(n); !errors.Is(err, store.ErrGeneration) {
			return err
		}
		known := n.Number
		if n, err = g.look(ctx, true); err == nil && n.Number == known {
			return fmt.Errorf("%w: %s, and a transaction around this one does not see which", store.ErrGeneration, g.name)
		}
	}
	return err
}

// Look asks the database for the present generation.
func (g *Generations) Look(ctx context.Context) (*Generation, error) { return g.look(ctx, true) }

// look returns the generation that this process knows. It asks the database if it knows none, or again is true.
func (g *Generations) look(ctx context.Context, again bool) (*Generation, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.current != nil && !again {
		return g.current, nil
	}
	var number int64
	err := g.box.store.SQL.QueryRow(ctx, g.box.store.DB(ctx), readGeneration, []any{g.name}, &number)
	// The first process that looks enters the read model. A second one at the same moment does nothing, by ON CONFLICT.
	if errors.Is(err, sql.ErrNoRows) {
		_, err = g.box.store.SQL.Exec(ctx, g.box.store.DB(ctx), enrollModel, g.name)
	}
	if err != nil {
		return nil, fmt.Errorf("inbox: look for read model %s: %w", g.name, pgerr.Explain(err))
	}
	if g.current == nil || g.current.Number != number {
		g.begin(number)
	}
	g.current.seen = time.Now()
	return g.current, nil
}

// begin makes the handlers of a generation. The generation before it has no parked messages any more, so its handlers are removed.
func (g *Generations) begin(number int64) {
	n := &Generation{Number: number, Consumer: store.GenerationName(g.name, number)}
	for _, w := range []**wrapped{&n.live, &n.replayed} {
		model := &store.Membership{Model: g.name, Generation: number, Replayed: w == &n.replayed}
		*w = g.box.newWrapped(n.Consumer, g.next, model, g.opts)
		(*w).of.subscription.Topic = "" // it handles all topics
	}
	g.box.mu.Lock()
	defer g.box.mu.Unlock()
	if g.elsewhere {
		g.current = n
		return
	}
	// Runners look handlers up by name, so the name of the former generation must not lead to its handler any more.
	if g.current != nil {
		delete(g.box.handlers, handlerKey{consumer: g.current.Consumer})
	}
	g.box.handlers[handlerKey{consumer: n.Consumer}] = n.live
	g.current = n
}

// Replay handles older messages. Messages that fail are tried until they are parked or dead. The error wraps store.ErrGeneration if another
// generation has begun.
func (n *Generation) Replay(ctx context.Context, events []event.Envelope) error {
	msgs := make([]*messaging.Message, len(events))
	for k := range events {
		msgs[k] = messaging.NewMessage(events[k], 1, nil)
	}
	err := n.replayed.HandleBatch(ctx, msgs)
	some, partly := errors.AsType[*messaging.BatchError](err)
	if !partly {
		return err
	}
	for k, m := range msgs {
		failed, ok := some.Failed[k]
		if !ok {
			continue
		}
		if !errors.Is(failed, messaging.ErrBehind) {
			m.Attempt++
		}
		if err := n.settle(ctx, m); err != nil {
			return fmt.Errorf("message %s: %w", m.ID, err)
		}
	}
	return nil
}

// settle tries a failed message until the inbox has settled it. After its tries the inbox parks it, so this ends, unless the database
// cannot be written.
func (n *Generation) settle(ctx context.Context, m *messaging.Message) error {
	w := n.replayed
	for {
		err := call(messaging.NewContext(ctx, m), w, m)
		if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrGeneration) || m.Attempt > w.of.retry.Tries+3 {
			return err
		}
		if w.of.quick().Wait(ctx, m.Attempt) != nil {
			return err
		}
		m.Attempt++
	}
}

// lookAtModels reads the generations of this process's read models again, if the last look is older than PollInterval: another process may
// have begun a rebuild.
func (r *runner) lookAtModels(ctx context.Context) error {
	r.box.mu.Lock()
	all := r.box.models
	r.box.mu.Unlock()
	for _, g := range all {
		g.mu.Lock()
		stale := g.current == nil || time.Since(g.current.seen) >= r.box.cfg.PollInterval
		g.mu.Unlock()
		if stale {
			if _, err := g.look(ctx, true); err != nil {
				return err
			}
		}
	}
	return nil
}
