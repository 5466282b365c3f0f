package oncebox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/uow"
)

// choosy is a broker in memory with Pulsar's rule for names.
type choosy struct{ *memory.Broker }

func (choosy) ValidateTopic(name string) error {
	if strings.Contains(name, "+") || strings.Contains(name, "-partition-") {
		return &event.InvalidError{Field: "Topic", Reason: "is a name that Pulsar refuses"}
	}
	return event.ValidateTopic(name)
}

func (c choosy) ValidateSubscription(s messaging.Subscription) error { return c.ValidateTopic(s.Topic) }

// disk is an aggregate whose type is the name of its topic.
type disk struct {
	event.Recorder

	kind string
}

func (d *disk) AggregateType() string { return d.kind }
func (*disk) AggregateID() string     { return "1" }
func (*disk) AggregateVersion() int64 { return 0 }

// A topic that the broker refuses for good is refused where the event is recorded, whatever records it, and where a consumer is made.
func TestTopicThatTheBrokerRefusesIsRefusedInTheUnit(t *testing.T) {
	db := pgtest.Migrated(t)
	app, err := oncebox.New(db.DB, choosy{memory.New(nil)}, apptest.Config())
	require.NoError(t, err)
	event.Register[OrderPlaced](app.Registry)
	native, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	defer func() { require.NoError(t, native.Close(context.Background())) }()
	ctx := t.Context()
	ways := map[string]func(topic string) error{
		"Unit.Add": func(topic string) error {
			return app.UoW.Do(ctx, func(_ context.Context, u *uow.Unit) error { return u.Add(topic, "x") })
		},
		"Track": func(topic string) error {
			return app.UoW.Do(ctx, func(_ context.Context, u *uow.Unit) error {
				d := &disk{kind: topic}
				d.Record(OrderPlaced{})
				u.Track(d)
				return nil
			})
		},
		"Store.Add": func(topic string) error {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Commit()) }()
			_, err = app.Outbox.Add(ctx, tx, topic, "x")
			return err
		},
		"AddPgx": func(topic string) error {
			tx, err := native.Begin(ctx)
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Commit(ctx)) }()
			_, err = app.Outbox.AddPgx(ctx, tx, topic, "x")
			return err
		},
	}
	for way, add := range ways {
		for _, topic := range []string{"disk-partition-1", "a+b", ".", " a", "a ", "a/b"} {
			require.ErrorIs(t, add(topic), event.ErrInvalid, "%s %q", way, topic)
		}
	}
	count := func() (n int) {
		require.NoError(t, db.NewRaw("SELECT count(*) FROM outbox").Scan(ctx, &n))
		return n
	}
	require.Zero(t, count())
	for way, add := range ways {
		require.NoError(t, add("disk.partition"), way)
	}
	require.Equal(t, len(ways), count())
	for _, topic := range []string{"disk-partition-1", "a+b", ".", " a"} {
		require.Panics(t, func() { app.Consume(topic, "billing", messaging.NewRouter(app.Registry)) }, "%q", topic)
	}

	cfg := apptest.Config() // a rule of the service's own goes before the broker's
	cfg.UoW.ValidateTopic = func(topic string) error { return fmt.Errorf("%w: %s", errRule, topic) }
	app, err = oncebox.New(db.DB, choosy{memory.New(nil)}, cfg)
	require.NoError(t, err)
	require.ErrorIs(t, app.UoW.Do(ctx, func(_ context.Context, u *uow.Unit) error { return u.Add("a", "x") }), errRule)
}

var errRule = errors.New("not by our rule")
