package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
)

// Projection is a read model that its handler makes of messages, each once, and that can be thrown away and made anew of the
// events that are kept, while messages go on coming: see [Projection.Rebuild]. It is the [messaging.BatchHandler] that its
// consumer runs, on any number of topics and in any number of processes.
//
// Each rebuild begins a generation. The inbox has one consumer per generation, "balances" at first and then "balances@1" and so on:
// that is the name of its parked messages and dead letters. [Inbox.Await] takes the projection's own name.
type Projection struct {
	box  *Inbox
	name string
	next messaging.Handler
	opts []Option
	// elsewhere: it is handled by other processes, and this one stores messages for it.
	elsewhere bool

	now  sync.Mutex
	view *view
}

// view is the generation that this process knows of.
type view struct {
	generation     int64
	live, replayed *wrapped
	seen           time.Time
}

// ProjectionStatus is the state of a projection.
type ProjectionStatus struct {
	Name string
	// Generation counts the rebuilds, and Consumer is its name in the inbox.
	Generation int64
	Consumer   string
	// Rebuilding says that live messages wait until all that is kept was replayed. Running says that a process is at it; if
	// none is, [Projection.Resume] goes on.
	Rebuilding, Running bool
	// Checkpoint is how far the history was read, and Events how many it has handed over.
	Checkpoint string
	Events     int64
	// Waiting is how many live messages wait.
	Waiting int64
	// StartedAt is when the latest rebuild began, zero if there was none, and UpdatedAt when it last got on.
	StartedAt, UpdatedAt time.Time
}

// errGeneration means that the projection is not of the generation that was expected, and that nothing was done.
var errGeneration = errors.New("inbox: the projection is of another generation by now")

const (
	enrollProjection = `INSERT INTO {schema}.inbox_projection (name) VALUES ($1) ON CONFLICT DO NOTHING`

	readGeneration = `SELECT generation FROM {schema}.inbox_projection WHERE name = $1`

	readProjection = `
SELECT p.generation, p.consumer, p.state = 'REBUILDING', p.owner IS NOT NULL AND p.lease_until > clock_timestamp(), p.checkpoint, p.events,
	(SELECT count(*) FROM {schema}.inbox_parked w WHERE w.consumer = p.name || '@' || p.generation::text || '` + aside + `'),
	p.started_at, p.updated_at
FROM {schema}.inbox_projection p WHERE p.name = $1`
)

// Projection returns the projection of a name, which is as stable as a consumer's, and which no consumer may have; a plain consumer
// that becomes a projection keeps what it has handled. next writes the read model, in the unit of the context, and
// handles what is live, what is replayed and, in [Inbox.RunParked], what was parked.
//
// It panics if the name is empty or not an identifier, or looks like one of a generation.
func (i *Inbox) Projection(name string, next messaging.Handler, opts ...Option) *Projection {
	if err := event.ValidateIdentifier("name", name); name == "" || err != nil || family(name) != name {
		panic(fmt.Sprintf("inbox: Projection: the name %q is empty, not an identifier, or ends like that of a generation, as in balances@1", name))
	}
	p := &Projection{box: i, name: name, next: next, opts: opts}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.projections = append(i.projections, p)
	return p
}

// Name is what it was given.
func (p *Projection) Name() string { return p.name }

// Handle handles a live message, or has it wait in the database while the projection is being rebuilt.
func (p *Projection) Handle(ctx context.Context, m *messaging.Message) error {
	return p.current(ctx, func(v *view) error { return v.live.Handle(ctx, m) })
}

// HandleBatch is Handle for several messages.
func (p *Projection) HandleBatch(ctx context.Context, msgs []*messaging.Message) error {
	return p.current(ctx, func(v *view) error { return v.live.HandleBatch(ctx, msgs) })
}

// current calls fn with the generation that there is; again, if another one had begun.
func (p *Projection) current(ctx context.Context, fn func(*view) error) error {
	v, err := p.look(ctx, false)
	for err == nil {
		if err = fn(v); !errors.Is(err, errGeneration) {
			return err
		}
		known := v.generation
		if v, err = p.look(ctx, true); err == nil && v.generation == known {
			return fmt.Errorf("%w: %s, and a transaction around this one does not see which", errGeneration, p.name)
		}
	}
	return err
}

// look returns what is known of the projection, or what the database says.
func (p *Projection) look(ctx context.Context, again bool) (*view, error) {
	p.now.Lock()
	defer p.now.Unlock()
	if p.view != nil && !again {
		return p.view, nil
	}
	var generation int64
	err := p.box.sql.QueryRow(ctx, p.box.units.DB(ctx), readGeneration, []any{p.name}, &generation)
	if errors.Is(err, sql.ErrNoRows) {
		_, err = p.box.sql.Exec(ctx, p.box.units.DB(ctx), enrollProjection, p.name)
	}
	if err != nil {
		return nil, fmt.Errorf("inbox: look for projection %s: %w", p.name, pgsql.Explain(err))
	}
	if p.view == nil || p.view.generation != generation {
		p.begin(generation)
	}
	p.view.seen = time.Now()
	return p.view, nil
}

// begin makes the handlers of a generation. Those of the one before have nothing parked any more.
func (p *Projection) begin(generation int64) {
	v := &view{generation: generation}
	for _, w := range []**wrapped{&v.live, &v.replayed} {
		*w = &wrapped{next: p.next, of: &membership{p.name, generation, w == &v.replayed}}
		p.box.equip(generationName(p.name, generation), *w, p.opts)
		(*w).subscription.Topic = "" // it is of all
	}
	p.box.mu.Lock()
	defer p.box.mu.Unlock()
	if p.elsewhere {
		p.view = v
		return
	}
	if p.view != nil {
		delete(p.box.handlers, handlerKey{consumer: p.view.live.consumer})
	}
	p.box.handlers[handlerKey{consumer: v.live.consumer}] = v.live
	p.view = v
}

// generationName is the name of a generation in the inbox.
func generationName(name string, generation int64) string {
	if generation == 0 {
		return name
	}
	return name + "@" + strconv.FormatInt(generation, 10)
}

// family is what the generations of a projection have in common: its name. Of other consumers it is their own. Keys are
// locked, and parked, by the name of the family, so that what is parked can be handed from one generation to the next.
func family(consumer string) string {
	end := strings.LastIndexByte(consumer, '@')
	if end < 0 {
		return consumer
	}
	if _, err := strconv.ParseUint(strings.TrimSuffix(consumer[end+1:], aside), 10, 63); err != nil {
		return consumer
	}
	return consumer[:end]
}

// lookAtProjections has what others did to the projections of this process become known, if nothing was heard for a while.
func (i *Inbox) lookAtProjections(ctx context.Context) error {
	i.mu.Lock()
	all := i.projections
	i.mu.Unlock()
	for _, p := range all {
		p.now.Lock()
		stale := p.view == nil || time.Since(p.view.seen) >= i.cfg.PollInterval
		p.now.Unlock()
		if stale {
			if _, err := p.look(ctx, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// Status tells how the projection is.
func (p *Projection) Status(ctx context.Context) (s ProjectionStatus, err error) {
	if _, err := p.look(ctx, true); err != nil {
		return s, err
	}
	var started sql.NullTime
	s.Name = p.name
	err = p.box.sql.QueryRow(ctx, p.box.units.DB(ctx), readProjection, []any{p.name},
		&s.Generation, &s.Consumer, &s.Rebuilding, &s.Running, &s.Checkpoint, &s.Events, &s.Waiting, &started, &s.UpdatedAt)
	if err != nil {
		return s, fmt.Errorf("inbox: read projection %s: %w", p.name, pgsql.Explain(err))
	}
	s.StartedAt = started.Time
	return s, nil
}
