package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/internal/arrival"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
	outboxstate "github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/projector/internal/measure"
)

// Projector relays one or more outboxes to a broker: it publishes their events and records that they are out. Make it
// with [New].
type Projector struct {
	pub    messaging.Publisher // shared by all workers of all stores
	cfg    Config
	pauses pauses
	stores []*outbox.Store
	log    *slog.Logger
	tracer trace.Tracer

	telemetry *measure.Instruments

	mu     sync.Mutex // of the fields below: Run changes them, and Wake and Progress may be called at any time
	begun  bool       // Run or RunOnce is under way
	relays []*relay   // one for each store; nil until a database has answered
	forget []func()   // each ends the calls of Wake from one store
}

// New returns a projector of the stores. It returns an error if the configuration cannot work, see [Config.Validate],
// or if the publisher or the stores are missing. It does not connect to anything yet.
func New(pub messaging.Publisher, cfg *Config, stores ...*outbox.Store) (*Projector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if pub == nil || len(stores) == 0 {
		return nil, errors.New("projector: New needs a publisher and at least one store")
	}
	c := cfg.WithDefaults()
	if c.Name == "" {
		c.Name = uniqueName()
	}
	c.Telemetry = c.Telemetry.Or(stores[0].Telemetry())
	p := &Projector{
		pub: pub, cfg: c, pauses: defaultPauses(), stores: stores,
		log: otelx.Logger(c.Telemetry.Logger), tracer: otelx.Tracer(c.Telemetry.TracerProvider, "projector"),
		telemetry: measure.New(c.Telemetry.MeterProvider),
	}
	return p, nil
}

// uniqueName has a random part: host and process id can repeat, for example in containers whose first process is
// always number 1.
func uniqueName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.100s-%d-%.8s", host, os.Getpid(), uuid.NewString())
}

// Name returns the name under which this projector owns lanes: that of the configuration, or a name that New has made.
func (p *Projector) Name() string { return p.cfg.Name }

// Wake makes a running projector look for rows at once instead of after its pause. It does nothing if the projector
// is not running.
func (p *Projector) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.relays {
		r.wake()
	}
}

// Run relays until ctx is done. Then it finishes the batches under way, hands its lanes back and returns nil. At its
// start it waits for the database, see [Config.DatabaseWait]. It returns an error if this projector is running
// already, or if a database can never be relayed.
func (p *Projector) Run(ctx context.Context) error {
	defer quietlog.Flush(p.log) // lines that were held back because they repeat themselves
	relays, err := p.start(ctx, p.cfg.DatabaseWait)
	if ctx.Err() != nil && err != nil {
		return nil // stopped before it began
	}
	if err != nil {
		return err
	}
	defer p.stop()
	defer p.telemetry.Gauges.Show(func() (outboxstate.Stats, bool) { return latest(relays) })()
	// No loop of a relay returns an error, see supervise. So a database that is away ends no other relay.
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range relays {
		group.Go(func() error { return r.run(ctx) })
	}
	return group.Wait()
}

// latest returns the sum of the states that the relays have read last. ok is false if this projector reads no outbox.
func latest(relays []*relay) (sum outboxstate.Stats, ok bool) {
	for _, r := range relays {
		if st, read := r.state.Latest(); read {
			sum, ok = sum.Plus(&st), true
		}
	}
	return sum, ok
}

// RunOnce publishes all rows that can be published now, and returns. Rows that wait for their time stay where they
// are, and so do the rows in lanes of other projectors. RunOnce is for tests, and for programs that relay by a timer
// of their own. It does not wait for a database: if none answers, it returns an error.
func (p *Projector) RunOnce(ctx context.Context) error {
	relays, err := p.start(ctx, arrival.Off)
	if err != nil {
		return err
	}
	defer p.stop()
	var errs []error
	for _, r := range relays {
		errs = append(errs, r.runOnce(ctx))
	}
	return errors.Join(errs...)
}

// start makes the relays and waits until a database has answered. The stores call the relays only after that, so a
// commit before it wakes nobody; nothing is missed, because every lane is read when it is claimed.
func (p *Projector) start(ctx context.Context, wait time.Duration) ([]*relay, error) {
	if err := p.begin(); err != nil {
		return nil, err
	}
	// New relays for each run: nothing that an earlier run knew about lanes or topics is true any more.
	relays := make([]*relay, len(p.stores))
	for i, s := range p.stores {
		relays[i] = newRelay(p, s)
	}
	// The mutex is not held during this wait: health checks call Progress meanwhile and must not hang.
	err := arrival.Wait{Limit: wait, Log: p.log}.Until(ctx, func() error { return p.reach(ctx, relays) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.begun = false
		return nil, err
	}
	for i, s := range p.stores {
		p.forget = append(p.forget, s.Handle().OnWake(relays[i].hear))
	}
	p.relays = relays
	return relays, nil
}

// begin makes sure that one Run or RunOnce is under way at a time: a second one would claim the same lanes under the
// same name.
func (p *Projector) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun {
		return errors.New("projector: it is running already")
	}
	p.begun = true
	return nil
}

// reach pings all databases. It returns nil if at least one answers and the others are only away: these are relayed
// when they are back. It returns an error if all are away, or if one answers with an error that waiting does not
// mend, such as missing tables.
func (p *Projector) reach(ctx context.Context, relays []*relay) error {
	var absent []error
	for _, r := range relays {
		if err := r.ping(ctx); away(err) {
			absent = append(absent, err)
		} else if err != nil {
			return err
		}
	}
	// One database is enough: events of the others wait where they are, and their users see no difference to a relay
	// that is busy.
	if len(absent) == len(relays) {
		return errors.Join(absent...)
	}
	for _, err := range absent {
		p.log.WarnContext(ctx, "oncebox: one of several databases does not answer, it is relayed when it does", "error", err)
	}
	return nil
}

// stop ends the calls of the stores, so that a stopped projector can be collected and started again.
func (p *Projector) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, forget := range p.forget {
		forget()
	}
	p.begun, p.relays, p.forget = false, nil, nil
}
