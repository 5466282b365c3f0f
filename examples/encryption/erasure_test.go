package encryption_test

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/encryption"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/published"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const street = "12 Confidential Road"

// moved is an event with something personal in it.
type moved struct {
	Street string `json:"street"`
}

func (moved) EventType() string { return "customer.moved" }

// service has a database with events, and another one with keys.
type service struct {
	t        *testing.T
	db       *pgtest.DB
	vault    *pgtest.DB
	keys     *encryption.Keys
	registry *event.Registry
	store    *outbox.Store
	units    *uow.Manager
	broker   *memory.Broker
	box      *inbox.Inbox
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{t: t, db: pgtest.Migrated(t), vault: pgtest.Open(t)}
	_, err := s.vault.ExecContext(t.Context(), encryption.Schema)
	require.NoError(t, err)
	s.keys = encryption.NewKeys(s.vault.DB)
	s.registry = registryOf(s.keys)
	s.store = outbox.NewStore(s.db.DB, &outbox.Config{Source: "crm", Registry: s.registry})
	s.units = uow.New(s.db.DB, &uow.Config{Source: "crm", Registry: s.registry}, s.store)
	s.box = inbox.New(s.units, &inbox.Config{Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}})
	s.broker = memory.New(nil)
	t.Cleanup(func() { _ = s.broker.Close() })
	return s
}

func registryOf(sealer event.Sealer) *event.Registry {
	r := event.NewRegistry(event.WithSealer(sealer))
	event.Register[moved](r)
	return r
}

// announce emits an event of an aggregate. Its id says what is to become of it.
func (s *service) announce(tenant, id string) error {
	return s.units.Do(event.WithTenant(s.t.Context(), tenant), func(_ context.Context, u *uow.Unit) error {
		return u.Add("customer", moved{street}, event.WithAggregate("customer", id, 0))
	})
}

// relay publishes what is there, unless the id of the aggregate says that the broker refuses it.
func (s *service) relay() {
	s.t.Helper()
	s.broker.Refuse(func(e event.Envelope) error {
		switch e.AggregateID {
		case "held":
			return errors.New("not now")
		case "dead":
			return messaging.Permanent(errors.New("never"))
		default:
			return nil
		}
	})
	p, err := projector.New(s.broker, &projector.Config{Retry: retry.Policy{Delay: time.Hour}}, s.store)
	require.NoError(s.t, err)
	require.NoError(s.t, p.RunOnce(s.t.Context()))
}

// stored is one payload wherever it lies.
type stored struct {
	Place string
	event.Envelope
}

// everywhere returns all payloads of all tables and of the broker.
func (s *service) everywhere() []stored {
	s.t.Helper()
	var tables []string
	require.NoError(s.t, s.db.NewRaw(`SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = current_schema()::regnamespace AND a.attname = 'payload' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
		`).Scan(s.t.Context(), &tables))
	var all []stored
	for _, table := range tables {
		id := "id::text"
		if table == "inbox_dead" || table == "inbox_parked" {
			id = "message_id"
		}
		rows, err := s.db.QueryContext(s.t.Context(), "SELECT "+id+", tenant_id, event_type, event_metadata::json ->> 'sealed_key', payload FROM "+table)
		require.NoError(s.t, err)
		for rows.Next() {
			at, keyID := stored{Place: table}, ""
			require.NoError(s.t, rows.Scan(&at.ID, &at.TenantID, &at.Type, &keyID, &at.Payload))
			at.Metadata = event.Metadata{event.SealedKey: keyID}
			all = append(all, at)
		}
		require.NoError(s.t, errors.Join(rows.Err(), rows.Close()))
	}
	for _, m := range s.broker.Messages("customer") {
		all = append(all, stored{"wire", m})
	}
	return all
}

// requireNoPlainText looks at every column of every row of every table.
func (s *service) requireNoPlainText() {
	s.t.Helper()
	var tables []string
	require.NoError(s.t, s.db.NewRaw(`SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v')`).
		Scan(s.t.Context(), &tables))
	for _, table := range tables {
		var rows []string
		require.NoError(s.t, s.db.NewRaw("SELECT t::text FROM ? t", bun.Ident(table)).Scan(s.t.Context(), &rows))
		for _, row := range rows {
			require.NotContains(s.t, row, "Confidential", table)
			require.NotContains(s.t, row, hex.EncodeToString([]byte("Confidential")), table)
		}
	}
}

// readable returns where the tenant's payloads can be read. All others must be erased.
func (s *service) readable(tenant string, keys *encryption.Keys) (places []string) {
	s.t.Helper()
	for _, at := range s.everywhere() {
		if at.TenantID != tenant {
			continue
		}
		opened, err := registryOf(keys).Open(s.t.Context(), &at.Envelope)
		if err != nil {
			require.ErrorIs(s.t, err, event.ErrErased, at.Place)
			continue
		}
		require.JSONEq(s.t, `{"street":"`+street+`"}`, string(opened.Payload))
		places = append(places, at.Place)
	}
	return places
}

func TestAfterTheErasureOfATenantNoneOfItsRowsCanBeRead(t *testing.T) {
	s := newService(t)
	grumble := s.box.Wrap("grumbler", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		return messaging.Permanent(errors.New("no"))
	}))
	for _, tenant := range []string{"acme", "globex"} {
		for _, id := range []string{"sent", "held", "dead"} {
			require.NoError(t, s.announce(tenant, id))
		}
		require.NoError(t, s.keys.Rotate(t.Context(), tenant))
		require.NoError(t, s.announce(tenant, "sent with the second key"))
	}
	s.relay()
	for _, tenant := range []string{"acme", "globex"} {
		require.NoError(t, s.announce(tenant, "unsent"))
	}
	for _, m := range s.broker.Messages("customer") {
		require.NoError(t, grumble.Handle(t.Context(), messaging.NewMessage(m, 1, nil)))
	}
	s.requireNoPlainText()
	all := []string{
		"outbox", "outbox", "outbox", "outbox_held", "outbox_dead", "inbox_dead", "inbox_dead", "wire", "wire",
	}
	require.ElementsMatch(t, all, s.readable("acme", s.keys))
	require.ElementsMatch(t, all, s.readable("globex", s.keys))

	require.NoError(t, s.keys.Erase(t.Context(), "acme"))
	for _, keys := range []*encryption.Keys{s.keys, encryption.NewKeys(s.vault.DB)} {
		require.Empty(t, s.readable("acme", keys))
		require.ElementsMatch(t, all, s.readable("globex", keys))
	}
	require.ErrorIs(t, s.announce("acme", "afterwards"), event.ErrErased)
	require.NoError(t, s.announce("globex", "afterwards"))
}

// What is behind an erased event goes on: consumers settle it unread, and so does a replay of history.
func TestErasedEventsBlockNobody(t *testing.T) {
	s := newService(t)
	for _, tenant := range []string{"acme", "globex"} {
		require.NoError(t, s.announce(tenant, "sent"))
	}
	s.relay()
	require.NoError(t, s.keys.Erase(t.Context(), "acme"))

	var read, erased []string
	router := messaging.NewRouter(s.registry)
	messaging.Handle(router, func(ctx context.Context, e moved) error {
		require.Equal(t, street, e.Street)
		read = append(read, event.TenantFrom(ctx))
		return nil
	})
	router.Erased(func(ctx context.Context, m *messaging.Message) error {
		require.Equal(t, "acme/1", m.Metadata[event.SealedKey])
		erased = append(erased, event.TenantFrom(ctx))
		return nil
	})
	once := s.box.Wrap("reader", router)
	for range 2 {
		for _, m := range s.broker.Messages("customer") {
			require.NoError(t, once.Handle(t.Context(), messaging.NewMessage(m, 1, nil)))
		}
	}
	require.Equal(t, []string{"globex"}, read)
	require.Equal(t, []string{"acme"}, erased, "it is settled: its second copy is a duplicate")
	dead, err := s.box.Dead().List(t.Context(), operator.DeadFilter{}, nil, 0)
	require.NoError(t, err)
	require.Empty(t, dead)

	done, err := s.store.Published().Replay(t.Context(), published.Filter{}, "customer.rebuild", messaging.Direct(router).Publish, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, done.Events)
	require.Len(t, read, 2)
	require.Len(t, erased, 2)
}

// A handler that announces something for a tenant that was erased can never succeed: a dead letter, not a blocked key.
func TestHandlerThatAnnouncesForAnErasedTenant(t *testing.T) {
	s := newService(t)
	require.NoError(t, s.keys.Erase(t.Context(), "acme"))
	once := s.box.Wrap("echo", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		u := uow.MustFromContext(ctx)
		return u.Add("customer", moved{street})
	}))
	m := messaging.NewMessage(event.Envelope{ID: "01932f5e-7c00-7000-8000-000000000001", Type: "tick", Source: "clock", TenantID: "acme"}, 1, nil)
	require.NoError(t, once.Handle(t.Context(), m))
	dead, err := s.box.Dead().List(t.Context(), operator.DeadFilter{}, nil, 0)
	require.NoError(t, err)
	require.Len(t, dead, 1)
	require.Contains(t, dead[0].Error, "erased")
}

func TestPayloadOpensInItsOwnEventOnly(t *testing.T) {
	s := newService(t)
	env := event.Envelope{ID: "1", TenantID: "acme", Type: "customer.moved", ContentType: event.ContentTypeJSON, Payload: []byte(`{}`)}
	require.NoError(t, s.registry.Seal(t.Context(), &env))
	_, err := s.registry.Open(t.Context(), &env)
	require.NoError(t, err)
	for name, change := range map[string]func(*event.Envelope){
		"id":      func(e *event.Envelope) { e.ID = "2" },
		"tenant":  func(e *event.Envelope) { e.TenantID = "globex" },
		"type":    func(e *event.Envelope) { e.Type = "customer.left" },
		"payload": func(e *event.Envelope) { e.Payload = append([]byte{e.Payload[0] ^ 1}, e.Payload[1:]...) },
	} {
		other := env
		change(&other)
		_, err := s.registry.Open(t.Context(), &other)
		var decode *event.DecodeError
		require.ErrorAs(t, err, &decode, name)
		require.NotErrorIs(t, err, event.ErrErased)
	}
}

// A key that cannot be had now is no erased key, and no reason for a dead letter.
func TestKeysThatCannotBeHadNow(t *testing.T) {
	s := newService(t)
	require.NoError(t, s.announce("acme", "sent"))
	s.relay()
	m := messaging.NewMessage(s.broker.Messages("customer")[0], 1, nil)

	var handled int
	once := func(keys *encryption.Keys) messaging.Handler {
		router := messaging.NewRouter(registryOf(keys))
		messaging.Handle(router, func(context.Context, moved) error { handled++; return nil })
		return s.box.Wrap("reader", router)
	}
	elsewhere := pgtest.Open(t)
	_, err := elsewhere.ExecContext(t.Context(), encryption.Schema)
	require.NoError(t, err)
	require.ErrorContains(t, once(encryption.NewKeys(elsewhere.DB)).Handle(t.Context(), m), "there is no key acme/1 here")

	down := s.vault.Another(t)
	require.NoError(t, down.Close())
	err = once(encryption.NewKeys(down)).Handle(t.Context(), m)
	require.ErrorContains(t, err, "closed")
	require.NotErrorIs(t, err, event.ErrErased)
	require.False(t, messaging.IsPermanent(err))

	require.NoError(t, once(s.keys).Handle(t.Context(), m), "it was tried again, and now the keys are there")
	require.Equal(t, 1, handled)
}
