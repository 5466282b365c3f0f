package inbox_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// world is a database with the tables, an inbox on it, and a table for effects.
type world struct {
	t     *testing.T
	db    *pgtest.DB
	units *uow.Manager
	box   *inbox.Inbox
}

func newWorld(t *testing.T, sinks ...uow.Sink) *world {
	t.Helper()
	return newWorldIn(t, pgtest.Migrated(t, pgtest.Inbox), sinks...)
}

func newWorldIn(t *testing.T, db *pgtest.DB, sinks ...uow.Sink) *world {
	t.Helper()
	_, err := db.ExecContext(t.Context(), "CREATE TABLE effects (what text NOT NULL, nth serial)")
	require.NoError(t, err)
	units := uow.New(db.DB, &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: quiet()}}, sinks...)
	return &world{t: t, db: db, units: units, box: newBox(units, nil)}
}

func newBox(units *uow.Manager, cfg *inbox.Config) *inbox.Inbox {
	if cfg == nil {
		cfg = &inbox.Config{}
	}
	if cfg.Telemetry.Logger == nil {
		cfg.Telemetry.Logger = quiet()
	}
	if cfg.LockTimeout == 0 {
		cfg.LockTimeout = time.Minute // as long as a test needs
	}
	return inbox.New(units, cfg)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// effect is a handler that leaves one row, named after the message.
func (w *world) effect(ctx context.Context, m *messaging.Message) error {
	_, err := w.units.DB(ctx).NewRaw("INSERT INTO effects (what) VALUES (?)", m.ID).Exec(ctx)
	return err
}

func (w *world) effects() []string {
	w.t.Helper()
	return column[string](w.t, w.db.DB, "SELECT what FROM effects ORDER BY nth")
}

func (w *world) entries() int {
	w.t.Helper()
	return column[int](w.t, w.db.DB, "SELECT count(*) FROM inbox")[0]
}

// dead returns all dead letters with their payloads.
func (w *world) dead() []inbox.DeadLetter {
	w.t.Helper()
	list, err := w.box.Dead().List(w.t.Context(), operator.DeadFilter{}, nil, 0)
	require.NoError(w.t, err)
	for n, d := range list {
		require.Nil(w.t, d.Envelope.Payload, "a list is without payloads")
		list[n], err = w.box.Dead().Show(w.t.Context(), d.Key)
		require.NoError(w.t, err)
	}
	return list
}

func column[T any](t *testing.T, db bun.IDB, query string, args ...any) (list []T) {
	t.Helper()
	require.NoError(t, db.NewRaw(query, args...).Scan(t.Context(), &list))
	return list
}

func newID(t *testing.T) string {
	t.Helper()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	return id.String()
}

// ordered is a message of an aggregate, with an ordering key therefore.
func ordered(id, aggregate string) *messaging.Message {
	return messaging.NewMessage(event.Envelope{
		ID: id, Type: "order.placed", Source: "shop", TenantID: "t1", Topic: "order", AggregateType: "order", AggregateID: aggregate,
		AggregateVersion: 3, Sequence: 17, RoutingKey: aggregate, ContentType: "application/json", Payload: []byte(`{"a":1}`),
	}, 1, nil)
}

// unordered returns a message without an ordering key.
func unordered(id string) *messaging.Message {
	return messaging.NewMessage(event.Envelope{ID: id, Type: "tick", Source: "clock", TenantID: "t1", Topic: "ticks"}, 1, nil)
}
