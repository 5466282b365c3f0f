package outbox

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/audit"
	"github.com/oncebox/oncebox/internal/deadletter"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/telemetry"
)

// Store is the outbox of one database. It is safe for concurrent use.
type Store struct {
	db     *bun.DB
	cfg    Config
	sql    *pgsql.Runner
	maker  envelope.Maker
	layout atomic.Pointer[layout]
	known  knownTenants
	silent metric.Int64Counter // hooks that failed
	dead   *deadletter.Box[DeadLetter]
	audit  *audit.Log

	recorded *recorded

	partitionsKept metric.Int64Counter
	kept           atomic.Pointer[policy]
	turn           atomic.Uint64 // of the lanes whose payloads have to be shared out, see bounded
	log            *slog.Logger

	ownRetention bool // Config.Retention was set

	id       string // among the stores that notify each other
	notifier notifier
	probe    time.Duration // after how much silence, see listenProbe
	answer   time.Duration // how long a probe may take

	mu     sync.Mutex
	wakers []*func(LaneSet)
}

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
	s := &Store{
		ownRetention: cfg != nil && cfg.Retention != 0,
		db:           db, cfg: c, sql: pgsql.New(c.Schema, c.Pooler, lists()...), log: otelx.Logger(c.Telemetry.Logger), id: uuid.NewString(),
		probe: listenProbe, answer: listenTimeout,
		silent: newSilent(&c), partitionsKept: newPartitionsKept(&c),
		maker: envelope.Maker{
			Registry: c.Registry, Source: c.Source, DefaultTenant: c.DefaultTenant, MaxPayload: c.MaxPayload,
			ValidateTopic: c.ValidateTopic,
			Tracer:        otelx.Tracer(c.Telemetry.TracerProvider, "outbox"),
		},
	}
	s.dead = s.newDead()
	s.audit = &audit.Log{Part: operator.PartOutbox, Run: s.adHoc(), Retention: c.AuditRetention}
	s.recorded = newRecorded(&c, s.fates)
	s.notifier = notifier{log: s.log, send: func(ctx context.Context, lanes LaneSet) error {
		return s.notify(ctx, s.id+" "+lanes.String())
	}}
	return s
}

// Committed is to be called after the COMMIT of what was flushed: [Store.Wake] for the lanes of the events, so that projectors look at no
// other ones, and the next flush of these tenants is a little cheaper. It is the CommitSink of package uow.
func (s *Store) Committed(_ context.Context, evs []event.Envelope) {
	s.known.committed(evs)
	s.recorded.committed(evs)
	s.wake(s.lanesOf(evs))
}

// lanesOf returns the lanes of events that this store has flushed.
func (s *Store) lanesOf(evs []event.Envelope) LaneSet {
	l := s.layout.Load()
	if l == nil || l.lanes%64 != 0 { // the lanes of another group are not 64 apart
		return AllLanes
	}
	var lanes LaneSet
	for i := range evs {
		lane, _ := l.place(&evs[i])
		lanes |= laneOf(lane)
	}
	return lanes
}

// Wake tells projectors that there may be new rows: those of this process by [Relay.OnWake], those of others by NOTIFY,
// at once or 2 ms after the one before. The NOTIFY is sent in the background, in a transaction of its own over a
// connection of the pool. Wake itself neither waits nor fails, and is a hint: without it rows leave at the next poll.
func (s *Store) Wake() { s.wake(AllLanes) }

func (s *Store) wake(lanes LaneSet) {
	s.mu.Lock()
	wakers := s.wakers
	s.mu.Unlock()
	for _, wake := range wakers {
		(*wake)(lanes)
	}
	if !s.cfg.PollOnly {
		s.notifier.tell(lanes)
	}
}

// OnWake has fn called by every [Store.Wake] and [Store.Committed] until forget is called, with the lanes that may have new rows. fn must not block.
func (s Relay) OnWake(fn func(LaneSet)) (forget func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waker := &fn
	// A new slice each time: Wake calls the old one without the lock.
	s.wakers = append(slices.Clip(s.wakers), waker)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wakers = slices.DeleteFunc(slices.Clone(s.wakers), func(w *func(LaneSet)) bool { return w == waker })
	}
}

// Ping checks that the tables are there and that this build can use them.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.loadLayout(ctx, bunHandle{s.sql, s.db})
	return err
}
