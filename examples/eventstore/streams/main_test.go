package streams_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/eventstore/streams"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// added is the event of the tests, in its second version.
type added struct {
	N int `json:"n"`
}

func (added) EventType() string { return "counter.added" }

// grown is the same event in its first version.
type grown struct {
	By string `json:"by"`
}

func (grown) EventType() string { return "counter.grown" }

// counter is an aggregate that is nothing but its events.
type counter struct {
	event.Recorder

	id      string
	version int64
	all     []event.Event
}

func (*counter) AggregateType() string     { return "counter" }
func (c *counter) AggregateID() string     { return c.id }
func (c *counter) AggregateVersion() int64 { return c.version }
func (c *counter) apply(e event.Event)     { c.all = append(c.all, e) }

// service is a schema with the tables of the outbox and the event store.
type service struct {
	*pgtest.DB

	outbox *outbox.Store
	store  *streams.Store
}

func newService(t *testing.T, opts ...event.RegisterOption) *service {
	t.Helper()
	db := pgtest.Migrated(t)
	_, err := db.ExecContext(t.Context(), streams.Table)
	require.NoError(t, err)
	registry := event.NewRegistry()
	event.Register[added](registry, opts...)
	return &service{DB: db, outbox: outbox.NewStore(db.DB, &outbox.Config{Source: "test", Schema: db.Schema}), store: streams.New(registry)}
}

// units is a manager with these sinks, in this order.
func (*service) units(db *bun.DB, cfg *uow.Config, sinks ...uow.Sink) *uow.Manager {
	c := uow.Config{Source: "test", Registry: event.NewRegistry()}
	if cfg != nil {
		c.Retry = cfg.Retry
	}
	event.Register[added](c.Registry, event.WithVersion(2))
	event.Register[grown](c.Registry)
	return uow.New(db, &c, sinks...)
}

func (s *service) load(ctx context.Context, db bun.IDB, id string) (*counter, error) {
	c := &counter{id: id}
	var err error
	c.version, err = s.store.Load(ctx, db, c, c.apply)
	return c, err
}

// rows counts what is committed in either table.
func (s *service) rows(t *testing.T) (stored, announced int) {
	t.Helper()
	require.NoError(t, s.NewRaw("SELECT (SELECT count(*) FROM stream_events), (SELECT count(*) FROM outbox)").Scan(t.Context(), &stored, &announced))
	return stored, announced
}

// sinkFunc is a sink that is a function.
type sinkFunc func(ctx context.Context, tx bun.IDB) error

func (fn sinkFunc) Flush(ctx context.Context, tx bun.IDB, _ []event.Envelope) error {
	return fn(ctx, tx)
}
