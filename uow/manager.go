package uow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/otelx"
)

// Manager begins units of work on one database. It is safe for concurrent use.
type Manager struct {
	db    *bun.DB
	cfg   Config
	maker envelope.Maker
	sinks []Sink

	log     *slog.Logger
	units   metric.Int64Counter
	retries metric.Int64Counter
}

// New returns a manager. Without sinks it is a plain transaction manager: a unit with events fails with [ErrNoSink].
func New(db *bun.DB, cfg *Config, sinks ...Sink) *Manager {
	c := cfg.withDefaults()
	meter := otelx.Meter(c.MeterProvider, "uow")
	return &Manager{
		db: db, cfg: c, sinks: sinks,
		maker: envelope.Maker{
			Registry: c.Registry, Source: c.Source, TopicPrefix: c.TopicPrefix, DefaultTenant: c.DefaultTenant,
			Topic: c.Topic, MaxPayload: c.MaxPayload,
		},
		log:     otelx.Logger(c.Logger),
		units:   otelx.Counter(meter, "oncebox.uow.units", "Units of work that ended, by outcome"),
		retries: otelx.Counter(meter, "oncebox.uow.retries", "Functions that were run again in a new transaction"),
	}
}

// Do runs fn in a transaction and commits it with the events of what was tracked. An error or a panic of fn rolls back.
// Within the function of another unit of this manager it is a savepoint; the options of the transaction then have no
// effect. See the package documentation for retries.
func (m *Manager) Do(ctx context.Context, fn func(ctx context.Context, u *Unit) error, opts ...Option) error {
	if outer := m.unitFrom(ctx); outer != nil {
		return outer.nested(ctx, fn)
	}
	o := options{attempts: m.cfg.Retry.MaxAttempts}
	for _, opt := range opts {
		opt(&o)
	}
	stale := staleSet{}
	for attempt := 1; ; attempt++ {
		err := m.once(ctx, fn, &o, stale)
		if err == nil || attempt >= o.attempts || !retryable(err) {
			return err
		}
		m.retries.Add(ctx, 1)
		pause := time.NewTimer(backoff.Jitter(backoff.Exponential(attempt, m.cfg.Retry.Delay, m.cfg.Retry.MaxDelay)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return errors.Join(err, ctx.Err())
		}
	}
}

// once is one try: one transaction.
func (m *Manager) once(ctx context.Context, fn func(context.Context, *Unit) error, o *options, stale staleSet) (err error) {
	u, err := m.begin(ctx, o, stale)
	if err != nil {
		return err
	}
	panicked := true
	defer func() {
		if panicked {
			u.rollback()
			m.count(ctx, "rolled_back")
		}
	}()
	if err = fn(u.context(ctx), u); err == nil {
		err = u.finish(ctx)
	}
	panicked = false
	if err != nil {
		u.rollback() // does nothing if COMMIT was sent
		outcome := "rolled_back"
		if errors.Is(err, ErrCommitUnknown) {
			outcome = "unknown"
		}
		m.count(ctx, outcome)
		return err
	}
	m.count(ctx, "committed")
	return nil
}

func (m *Manager) count(ctx context.Context, outcome string) {
	m.units.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", outcome)))
}

// DB returns the transaction of the unit in ctx, and the pool if there is none. It is for code whose signature has no
// room for a unit; a function that must not run outside one should use [FromContext].
func (m *Manager) DB(ctx context.Context) bun.IDB {
	if u := m.unitFrom(ctx); u != nil {
		return u.DB()
	}
	return m.db
}

type (
	managerKey struct{ m *Manager }
	unitKey    struct{}
)

func (m *Manager) unitFrom(ctx context.Context) *Unit {
	u, _ := ctx.Value(managerKey{m}).(*Unit)
	if u == nil || u.root.ended.Load() {
		// A goroutine or a hook that outlived its unit starts afresh.
		return nil
	}
	return u
}

// FromContext returns the innermost unit that ctx carries.
func FromContext(ctx context.Context) (*Unit, bool) {
	u, ok := ctx.Value(unitKey{}).(*Unit)
	return u, ok && !u.root.ended.Load()
}

func (m *Manager) begin(ctx context.Context, o *options, stale staleSet) (*Unit, error) {
	// A pooled connection is waited for as long as the caller likes.
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("uow: get a connection to the database: %w", err)
	}
	// But the transaction is not the caller's to cancel: database/sql would roll it back behind our back, COMMIT
	// included. So it has a context of its own, which follows the caller's only until BEGIN has been answered.
	txCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, cancel)
	tx, err := conn.BeginTx(txCtx, &o.tx)
	if !unhook() && err == nil {
		err = errors.Join(context.Cause(ctx), tx.Rollback())
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("uow: begin: %w", errors.Join(err, conn.Close()))
	}
	r := &root{manager: m, conn: conn, tx: tx, cancel: cancel, stale: stale}
	return &Unit{root: r}, nil
}
