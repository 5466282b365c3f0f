package outbox

import (
	"context"
	"errors"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/audit"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/dead"
	"github.com/oncebox/oncebox/outbox/delayed"
	"github.com/oncebox/oncebox/outbox/published"
	"github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/outbox/tenants"
	"github.com/oncebox/oncebox/outbox/upkeep"
	"github.com/oncebox/oncebox/telemetry"
)

// Store is the outbox of one database. It is safe for concurrent use.
type Store struct {
	box      *outboxdb.Handle
	cfg      Config
	maker    envelope.Maker
	known    knownTenants
	recorded *recorded
	upkeep   *upkeep.Upkeep
	audit    *audit.Log
}

// Dead returns the dead letters: events that were given up.
func (s *Store) Dead() *dead.Letters { return dead.New(s.box) }

// Delayed returns the delayed events: events whose time has not come.
func (s *Store) Delayed() *delayed.Events { return delayed.New(s.box) }

// Published returns the published events that are kept.
func (s *Store) Published() *published.Events { return published.New(s.box) }

// Tenants returns the tenants, for pausing or moving their events.
func (s *Store) Tenants() *tenants.Tenants { return tenants.New(s.box) }

// State returns the reader of the outbox's state, for operators.
func (s *Store) State() *state.Reader { return state.New(s.box) }

// Upkeep returns the maintenance of the tables.
func (s *Store) Upkeep() *upkeep.Upkeep { return s.upkeep }

// Audit lists the actions of operators and of the retention, the newest first. A page has at most limit entries (0:
// 100). It begins after the entry before, the last of the previous page, of which only the ID counts (nil: with the
// newest). Entries are kept for [Config.AuditRetention].
func (s *Store) Audit(ctx context.Context, filter operator.AuditFilter, before *operator.AuditEntry, limit int) ([]operator.AuditEntry, error) {
	return s.audit.List(ctx, s.box.DB, filter, before, limit)
}

// Handle returns the handle that all parts of an outbox share, for package projector.
func (s *Store) Handle() *outboxdb.Handle { return s.box }

// Source returns the name of the service, see [Config.Source]; "" if none is configured.
func (s *Store) Source() string { return s.cfg.Source }

// Telemetry returns where logs, traces and metrics go. It is the default of parts that work on the store, such as a
// projector or the console. The Logger is not nil.
func (s *Store) Telemetry() telemetry.Config {
	return telemetry.Config{Logger: s.box.Log, TracerProvider: s.cfg.Telemetry.TracerProvider, MeterProvider: s.cfg.Telemetry.MeterProvider}
}

// NewStore returns the store of db.
func NewStore(db *bun.DB, cfg *Config) *Store {
	c := cfg.WithDefaults()
	box := outboxdb.New(db, otelx.Logger(c.Telemetry.Logger), &outboxdb.Settings{
		Schema: c.Schema, Pooler: c.Pooler, PollOnly: c.PollOnly, NoHistory: c.NoHistory, Deployment: c.Deployment,
		DefaultTenantID: c.DefaultTenantID, MaxPayload: c.MaxPayload,
		OnDead: c.OnDead, OnDeadTimeout: c.OnDeadTimeout, Unannounced: newUnannounced(&c),
	})
	return &Store{
		box: box, cfg: c,
		recorded: newRecorded(&c, func(ctx context.Context, xids []string) (map[string]string, error) { return fates(ctx, box, xids) }),
		upkeep: upkeep.New(box, &upkeep.Settings{
			Retention: c.Retention, OwnRetention: cfg != nil && cfg.Retention != 0, BeforeDrop: c.BeforeDrop, MeterProvider: c.Telemetry.MeterProvider,
		}),
		audit: &audit.Log{Part: operator.PartOutbox, Run: box.AdHoc(), Retention: c.AuditRetention},
		maker: envelope.Maker{
			Registry: c.Registry, Source: c.Source, TopicPrefix: c.TopicPrefix, DefaultTenantID: c.DefaultTenantID, MaxPayload: c.MaxPayload,
			ValidateTopic: c.ValidateTopic,
			Tracer:        otelx.Tracer(c.Telemetry.TracerProvider, "outbox"),
		},
	}
}

// Committed is called after the COMMIT of events that were flushed. It is [Store.Wake] for the lanes of the events, so that relays look at no other
// lanes, and makes the next flush of these tenants a little cheaper. It is the CommitSink of package uow.
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

// Ping checks that the tables exist and fit this build.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.box.Layout(ctx, s.box.On(s.box.DB))
	return err
}

// Clean ensures the partitions ahead, drops the expired ones, deletes the dead letters that are older than
// [Config.DeadRetention] and the audit that is older than [Config.AuditRetention], and forgets the dedup keys that are older
// than [Config.DedupRetention], once. It is safe in any number of processes. If [Config.BeforeDrop] fails, that is logged and
// counted, but is not an error of Clean: the next Clean tries again.
func (s *Store) Clean(ctx context.Context) error {
	return errors.Join(s.upkeep.Clean(ctx), s.Dead().Expire(ctx, s.cfg.DeadRetention), s.audit.Expire(ctx, s.box.DB), s.expireKeys(ctx))
}

// newUnannounced returns the counter of failed hooks, nil if there is no hook.
func newUnannounced(c *Config) metric.Int64Counter {
	if c.OnDead == nil {
		return noop.Int64Counter{}
	}
	return otelx.Started(otelx.Meter(c.Telemetry.MeterProvider, "outbox"), "oncebox.outbox.unannounced",
		"Dead letters for which Config.OnDead failed", nil)
}
