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
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/internal/arrival"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
)

// Projector relays outboxes to a broker. Make it with [New].
type Projector struct {
	pub    messaging.Publisher
	cfg    Config
	pauses pauses
	stores []*outbox.Store
	log    *slog.Logger
	tracer trace.Tracer

	telemetry *instruments

	mu     sync.Mutex
	begun  bool     // Run or RunOnce is under way
	relays []*relay // its relays, once a database has answered
	forget []func() // end the stores' calls of Wake
}

// New returns a projector of the stores. It errs if the configuration cannot work.
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
		telemetry: newInstruments(c.Telemetry.MeterProvider),
	}
	return p, nil
}

func uniqueName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%.100s-%d-%.8s", host, os.Getpid(), uuid.NewString())
}

// Name is under which name this projector owns lanes.
func (p *Projector) Name() string { return p.cfg.Name }

// Wake makes a running projector look for rows now.
func (p *Projector) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.relays {
		r.wake()
	}
}

// Run relays until ctx is done, finishes the batches under way, hands its lanes back and returns nil. Call it once at
// a time. At its start it waits for the database, see [Config.DatabaseWait].
func (p *Projector) Run(ctx context.Context) error {
	defer quietlog.Flush(p.log)
	relays, err := p.start(ctx, p.cfg.DatabaseWait)
	if ctx.Err() != nil && err != nil {
		return nil // told to stop before it began
	}
	if err != nil {
		return err
	}
	defer p.stop()
	defer p.telemetry.gauges.all.Show(func(_ context.Context, to metric.Observer) error {
		p.telemetry.gauges.show(to, relays)
		return nil
	})()
	group, ctx := errgroup.WithContext(ctx)
	for _, r := range relays {
		group.Go(func() error { return r.run(ctx) })
	}
	return group.Wait()
}

// RunOnce publishes what can be published now and returns. Rows that wait for their time stay, and so do the lanes of
// other projectors. It is for tests, and for programs that relay by a timer of their own. A database that is away is an error.
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

func (p *Projector) start(ctx context.Context, wait time.Duration) ([]*relay, error) {
	if err := p.begin(); err != nil {
		return nil, err
	}
	relays := make([]*relay, len(p.stores))
	for i, s := range p.stores {
		relays[i] = newRelay(p, s)
	}
	// Without the mutex: Progress is asked meanwhile.
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

func (p *Projector) begin() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun {
		return errors.New("projector: it is running already")
	}
	p.begun = true
	return nil
}

// reach returns nil if one of the databases answers and none of them can never be relayed.
func (p *Projector) reach(ctx context.Context, relays []*relay) error {
	var absent []error
	for _, r := range relays {
		if err := r.ping(ctx); away(err) {
			absent = append(absent, err)
		} else if err != nil {
			return err
		}
	}
	if len(absent) == len(relays) {
		return errors.Join(absent...)
	}
	for _, err := range absent {
		p.log.WarnContext(ctx, "oncebox: one of several databases does not answer, it is relayed when it does", "error", err)
	}
	return nil
}

func (p *Projector) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, forget := range p.forget {
		forget()
	}
	p.begun, p.relays, p.forget = false, nil, nil
}
