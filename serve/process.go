package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/telemetry/otlp"
	"github.com/oncebox/oncebox/telemetry/prom"
)

// process is one process of a service.
type process struct {
	service Service
	app     config.Config
	cfg     Config
	kind    *brokers.Kind // nil: no broker, or that of the service
	log     *slog.Logger
	quiet   *slog.Logger // log, for failures that repeat
	metrics http.Handler

	// wired is nil until the service is set up. Probes read it in other goroutines.
	wired  atomic.Pointer[oncebox.App]
	ending atomic.Bool
	// closers end what was opened, in reverse order.
	closers []func(context.Context) error
}

// newProcess reads the settings. It opens nothing.
func newProcess(s Service) (*process, error) {
	if s.Setup == nil {
		return nil, errors.New("serve: Service.Setup is nil: give a function that registers events and consumers, and returns the routes")
	}
	p := &process{service: s}
	var err, chosen error
	p.app, p.cfg, err = fromEnv(&p.service)
	if s.Broker == nil {
		p.kind, chosen = choose(s.Brokers, p.cfg.Broker)
	}
	if err := errors.Join(err, chosen); err != nil {
		return nil, err
	}
	p.log = cmp.Or(p.app.Telemetry.Logger, newLog(&p.cfg, os.Stderr))
	p.app.Telemetry.Logger = p.log
	p.quiet = config.Quiet(p.log, p.app.LogInterval)
	return p, nil
}

// choose returns the broker of the process, nil if there is none. An address that somebody forgot to set must not look like a service without a broker:
// its events would count as published, and no other service would get them.
func choose(linked []brokers.Kind, name string) (*brokers.Kind, error) {
	const variable = prefix + "BROKER"
	choice := brokers.Choice{Kinds: linked, Flag: variable, Others: func(name string) string { return "add " + name + ".Kind() to Service.Brokers" }}
	kind, err := choice.Choose(name)
	switch {
	case err != nil:
		return nil, err
	case kind != nil:
		return kind, kind.Check(config.Env)
	case len(linked) > 0 && name == "":
		return nil, fmt.Errorf("the program links a broker, and no address is set: set %s, or %s=%s if the database is to carry the events",
			choice.Variables(), variable, brokers.None)
	default:
		return nil, nil
	}
}

// newLog returns the logger of the process.
func newLog(cfg *Config, to io.Writer) *slog.Logger {
	level, err := cfg.level()
	if err != nil {
		level = slog.LevelInfo // Validate has refused it
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: durationAsText}
	var h slog.Handler = slog.NewTextHandler(to, options)
	if cfg.LogFormat == "json" {
		h = slog.NewJSONHandler(to, options)
	}
	return slog.New(telemetry.WithIDs(h))
}

// durationAsText writes a duration as 1m20s. JSON would have the number of nanoseconds.
func durationAsText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// observe makes the providers of metrics and traces, unless the service has set its own.
func (p *process) observe(ctx context.Context) error {
	t := &p.app.Telemetry
	meters, page, err := prom.New()
	if err != nil {
		return err
	}
	if t.MeterProvider == nil {
		t.MeterProvider = meters
	}
	p.metrics = page
	if t.TracerProvider != nil {
		return nil
	}
	traces, end, err := otlp.Traces(ctx, p.app.UoW.Source)
	if err != nil {
		return err
	}
	t.TracerProvider = traces
	p.closers = append(p.closers, end)
	return nil
}

// open connects and wires everything, and returns the handler of the requests and that of the console, both nil if there is none.
func (p *process) open(ctx context.Context) (requests, page http.Handler, err error) {
	broker, err := p.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	db, err := config.OpenDB(ctx, p.app)
	if err != nil {
		return nil, nil, err
	}
	p.closers = append(p.closers, func(context.Context) error { return db.Close() })
	app, err := oncebox.New(db, broker, p.app)
	if err != nil {
		return nil, nil, err
	}
	if err := p.prepare(ctx, app, db); err != nil {
		return nil, nil, err
	}
	if requests, err = p.service.setUp(ctx, app); err != nil {
		return nil, nil, err
	}
	if page, err = p.newConsole(db, app); err != nil {
		return nil, nil, err
	}
	p.wired.Store(app)
	return requests, page, nil
}

// connect connects to the broker, which may come later.
func (p *process) connect(ctx context.Context) (oncebox.Broker, error) {
	if p.kind == nil {
		return p.service.Broker, nil
	}
	broker, err := p.kind.Connect(ctx, brokers.Options{Env: config.Env, Telemetry: p.app.Telemetry})
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, func(context.Context) error { return broker.Close() })
	return broker, nil
}

// prepare makes the tables, if this process is to make them. It refuses the tables of another service before anything writes, also Service.Setup.
func (p *process) prepare(ctx context.Context, app *oncebox.App, db *bun.DB) error {
	if !p.cfg.Migrate {
		return app.RefuseForeign(ctx)
	}
	if err := app.Migrate(ctx); err != nil {
		return err
	}
	return p.service.makeTables(ctx, db)
}

// advise adds what this process can do to an error about tables that are missing.
func (p *process) advise(err error) error {
	missing, _ := errors.AsType[*migrations.MissingError](err)
	made := missing != nil && len(missing.Unknown) == 0 || pgerr.Code(err) == pgerr.UndefinedTable
	if p.cfg.Migrate || !made {
		return err
	}
	return fmt.Errorf("%w; with %sMIGRATE=true this process makes its tables", err, prefix)
}

// parts returns what oncebox runs in this process.
func (p *process) parts() (all []oncebox.Part) {
	if p.cfg.has(Relay) {
		all = append(all, oncebox.Relay)
	}
	if p.cfg.has(Consumers) {
		all = append(all, oncebox.Consumers)
	}
	if p.cfg.has(API) || p.cfg.has(Consumers) { // what they write has to be removed one day
		all = append(all, oncebox.Cleaner)
	}
	return all
}

// ready returns why the process cannot work, nil if it can. A process that answers requests needs no broker, because their events can wait in the
// outbox.
func (p *process) ready(ctx context.Context) error {
	app := p.wired.Load()
	switch {
	case p.ending.Load():
		return errors.New("serve: the process ends")
	case app == nil:
		return errors.New("serve: the process starts: its log says what it waits for")
	}
	check := func() error { return app.Ready(ctx, p.parts()...) }
	if p.cfg.has(API) {
		check = func() error { return app.ReadyToWrite(ctx) }
	}
	if err := check(); err != nil || p.service.Ready == nil {
		return err
	}
	return p.service.Ready(ctx)
}
