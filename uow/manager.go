package uow

import (
	"context"
	"database/sql"
	"log/slog"
	"sync"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/telemetry"
)

// Manager begins units of work on one database. It is safe for concurrent use.
type Manager struct {
	db       *bun.DB
	cfg      Config
	maker    envelope.Maker
	sinks    []Sink
	handlers []handler
	// mappings holds a *mapping for each type of model.
	mappings sync.Map

	pool pool

	log      *slog.Logger
	units    metric.Int64Counter
	outcomes map[string][]metric.AddOption // of units
	retries  metric.Int64Counter
}

// New returns a manager. Without sinks it is a plain transaction manager: a unit with events fails with [ErrNoSink].
func New(db *bun.DB, cfg *Config, sinks ...Sink) *Manager {
	c := cfg.WithDefaults()
	meter := otelx.Meter(c.Telemetry.MeterProvider, "uow")
	log := otelx.Logger(c.Telemetry.Logger)
	outcomes := otelx.Outcomes(committed, rolledBack, unknown)
	return &Manager{
		db: db, cfg: c, sinks: sinks, outcomes: outcomes,
		maker: envelope.Maker{
			Registry: c.Registry, Source: c.Source, TopicPrefix: c.TopicPrefix, DefaultTenantID: c.DefaultTenantID,
			Topic: c.Topic, ValidateTopic: c.ValidateTopic, MaxPayload: c.MaxPayload, Tracer: otelx.Tracer(c.Telemetry.TracerProvider, "uow"),
		},
		pool:    pool{db: db, log: log, starvedAfter: starvedAfter},
		log:     log,
		units:   otelx.Started(meter, "oncebox.uow.units", "Units of work that ended, by outcome", outcomes),
		retries: otelx.Started(meter, "oncebox.uow.retries", "Calls of a unit's function that were repeated in a new transaction", nil),
	}
}

// Telemetry returns where logs, traces and metrics go. It is the default of packages that wrap units, such as a middleware. The Logger is not nil.
func (m *Manager) Telemetry() telemetry.Config {
	return telemetry.Config{Logger: m.log, TracerProvider: m.cfg.Telemetry.TracerProvider, MeterProvider: m.cfg.Telemetry.MeterProvider}
}

// Topic returns the topic at the broker of a name in the program, see [Config.TopicPrefix].
func (m *Manager) Topic(name string) string { return envelope.FullTopic(m.cfg.TopicPrefix, name) }

// How a unit ended, as the metric has it.
const (
	committed  = "committed"
	rolledBack = "rolled_back"
	unknown    = "unknown"
)

func (m *Manager) count(ctx context.Context, outcome string) {
	m.units.Add(ctx, 1, m.outcomes[outcome]...)
}

// DB returns the transaction of the unit in ctx, and the pool if ctx carries no open unit. It is for code whose signature has no room for a unit. A
// function that must not run outside a unit should use [FromContext]. After the unit has ended DB returns the pool: the statements of a goroutine
// that outlives its unit commit by themselves, even if the unit was rolled back. In a handler that runs under a lease (inbox.Leased) DB returns the
// pool as well, which refuses statements there if config.Config.RefusePool is set.
func (m *Manager) DB(ctx context.Context) bun.IDB {
	if u := m.unitFrom(ctx); u != nil {
		return u.root.tx.bun
	}
	return m.db
}

// unitFrom returns the innermost open unit of this manager's database.
func (m *Manager) unitFrom(ctx context.Context) *level {
	l := find(ctx, func(u *level) bool { return u.root.manager.db.DB == m.db.DB })
	if l != nil {
		l.root.used.Store(true)
	}
	return l
}

type options struct {
	tx       sql.TxOptions
	attempts int
	token    *Token
	// nestedChecks: see WithNestedChecks.
	nestedChecks bool
	// ping: the connection has to answer.
	ping bool
	// stale are the aggregates of earlier tries.
	stale staleSet
}

// Option changes one call of [Manager.Do] or [Manager.Begin].
type Option func(*options)

// WithIsolation sets the isolation level. Default: the server's, READ COMMITTED unless changed there.
func WithIsolation(level sql.IsolationLevel) Option {
	return func(o *options) { o.tx.Isolation = level }
}

// WithReadOnly begins a transaction that may not write.
func WithReadOnly() Option { return func(o *options) { o.tx.ReadOnly = true } }

// WithoutRetry runs the function only once, also if it fails.
func WithoutRetry() Option { return func(o *options) { o.attempts = 1 } }

// WithNestedChecks is for a middleware that begins a unit around a handler that has units of its own. A unit directly within it is then checked
// like an outermost one when it ends: the functions given to [On] are called, and it fails with their errors, with [ErrStale] or with [ErrNoSink].
// Aggregates and events that the middleware's unit got in another way are checked when that unit ends.
func WithNestedChecks() Option { return func(o *options) { o.nestedChecks = true } }

// WithToken sets t to a token of the unit's events when the unit is committed. t stays unchanged if the unit has no events, if it is not committed,
// and for a savepoint, whose events belong to the transaction around it. Do also begins a savepoint in an HTTP handler behind httpmw.Idempotency or
// httpmw.UnitOfWork. There, set IdempotencyConfig.TokenHeader: the middleware then puts the token into the answer.
func WithToken(t *Token) Option { return func(o *options) { o.token = t } }
