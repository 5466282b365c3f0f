package outbox

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/audit"
	"github.com/oncebox/oncebox/internal/deadletter"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/telemetry"
)

// Store is the outbox of one database. It is safe for concurrent use.
type Store struct {
	box   *outboxdb.Handle
	db    *bun.DB
	cfg   Config
	sql   *pgsql.Runner
	log   *slog.Logger
	maker envelope.Maker
	known knownTenants
	dead  *deadletter.Box[DeadLetter]
	audit *audit.Log

	recorded *recorded

	partitionsKept metric.Int64Counter
	kept           atomic.Pointer[policy]
	ownRetention   bool // Config.Retention was set
}

// Row is an event of the outbox, and the state of its delivery.
type Row = outboxdb.Row

// State returns what shows the state of the outbox to operators.
func (s *Store) State() *state.Reader { return state.New(s.box) }

// Handle returns what the parts of an outbox share. It is for package projector.
func (s *Store) Handle() *outboxdb.Handle { return s.box }

// Source is the name of the service, see [Config.Source]. "": none is configured.
func (s *Store) Source() string { return s.cfg.Source }

// Telemetry returns where logs, traces and metrics go, for what works on the store and does not say it itself: a projector, the console. The Logger is
// not nil.
func (s *Store) Telemetry() telemetry.Config {
	return telemetry.Config{Logger: s.log, TracerProvider: s.cfg.Telemetry.TracerProvider, MeterProvider: s.cfg.Telemetry.MeterProvider}
}

// NewStore returns the store of db.
func NewStore(db *bun.DB, cfg *Config) *Store {
	c := cfg.WithDefaults()
	box := outboxdb.New(db, otelx.Logger(c.Telemetry.Logger), &outboxdb.Settings{
		Schema: c.Schema, Pooler: c.Pooler, PollOnly: c.PollOnly, Deployment: c.Deployment,
		OnDead: c.OnDead, OnDeadTimeout: c.OnDeadTimeout, Unannounced: newUnannounced(&c),
	})
	s := &Store{
		box: box, db: db, cfg: c, sql: box.Run, log: box.Log, ownRetention: cfg != nil && cfg.Retention != 0, partitionsKept: newPartitionsKept(&c),
		maker: envelope.Maker{
			Registry: c.Registry, Source: c.Source, DefaultTenant: c.DefaultTenant, MaxPayload: c.MaxPayload,
			ValidateTopic: c.ValidateTopic,
			Tracer:        otelx.Tracer(c.Telemetry.TracerProvider, "outbox"),
		},
	}
	s.dead = s.newDead()
	s.audit = &audit.Log{Part: operator.PartOutbox, Run: s.adHoc(), Retention: c.AuditRetention}
	s.recorded = newRecorded(&c, s.fates)
	return s
}

// Committed is to be called after the COMMIT of what was flushed: [Store.Wake] for the lanes of the events, so that projectors look at no
// other ones, and the next flush of these tenants is a little cheaper. It is the CommitSink of package uow.
func (s *Store) Committed(_ context.Context, evs []event.Envelope) {
	s.known.committed(evs)
	s.recorded.committed(evs)
	s.box.Wake(s.box.LanesOf(evs))
}

// Wake notifies projectors that there may be new rows: projectors of this process directly, and projectors of other
// processes by NOTIFY, at once or 2 ms after the last NOTIFY. It is sent in the background, in a transaction of its
// own over a connection of the pool. Wake itself neither waits nor fails, and is a hint: without it rows leave at the
// next poll.
func (s *Store) Wake() { s.box.Wake(outboxdb.AllLanes) }

// Ping checks that the tables are there and that this build can use them.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.box.Layout(ctx, s.box.On(s.db))
	return err
}

// newUnannounced makes the counter, if there is a hook that can fail.
func newUnannounced(c *Config) metric.Int64Counter {
	if c.OnDead == nil {
		return noop.Int64Counter{}
	}
	return otelx.Started(otelx.Meter(c.Telemetry.MeterProvider, "outbox"), "oncebox.outbox.unannounced",
		"Dead letters that were not announced because Config.OnDead failed", nil)
}
