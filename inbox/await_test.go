package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// wire is a sink that keeps what is to be published.
type wire struct{ sent []event.Envelope }

func (w *wire) Flush(_ context.Context, _ bun.IDB, evs []event.Envelope) error {
	w.sent = append(w.sent, evs...)
	return nil
}

func (w *wire) message(i int) *messaging.Message { return messaging.NewMessage(w.sent[i], 1, nil) }

// announce commits a unit of three events, two of them on the topic order.
func announce(t *testing.T, w *world) (token uow.Token) {
	t.Helper()
	require.NoError(t, w.units.Do(event.WithTenant(t.Context(), "acme"), func(_ context.Context, u *uow.Unit) error {
		return errors.Join(u.Add("order", []byte("1")), u.Add("order", []byte("2")), u.Add("mail", []byte("3")))
	}, uow.WithToken(&token)))
	return token
}

func TestAwait(t *testing.T) {
	sink := &wire{}
	w := newWorld(t, sink)
	token := announce(t, w)
	once := w.box.Wrap("summary", messaging.HandlerFunc(w.effect))
	// It waits until it has looked at least twice.
	soon := func(topics ...string) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		looks := 0
		cfg, err := pgx.ParseConfig(w.db.DSN)
		require.NoError(t, err)
		cfg.Tracer = looking(func(string) {
			if looks++; looks > 3 { // the first one looks for the schema
				cancel()
			}
		})
		pool := sql.OpenDB(stdlib.GetConnector(*cfg))
		defer pool.Close()
		units := uow.New(bun.NewDB(pool, pgdialect.New()), &uow.Config{Telemetry: telemetry.Config{Logger: quiet()}})
		return newBox(units, nil).Await(ctx, "summary", token, topics...)
	}
	bound := 50 * time.Millisecond
	await.True(t, func() bool {
		bound *= 2 // until it is enough for a look
		bounded, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		err := w.box.Await(bounded, "summary", token)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return strings.Contains(err.Error(), "summary has handled 0 of 3 events")
	}, "what was handled so far")

	require.NoError(t, once.Handle(t.Context(), sink.message(0)))
	require.NoError(t, w.box.Wrap("another", messaging.HandlerFunc(w.effect)).Handle(t.Context(), sink.message(1)))
	require.ErrorContains(t, soon("order"), "summary has handled 1 of 2 events")

	waiting := make(chan error)
	go func() { waiting <- w.box.Await(t.Context(), "summary", token, "order") }()
	require.NoError(t, once.Handle(t.Context(), sink.message(1)))
	require.NoError(t, <-waiting)
	require.ErrorContains(t, soon("order", "mail"), "summary has handled 2 of 3 events")
	require.NoError(t, once.Handle(t.Context(), sink.message(2)))
	require.NoError(t, w.box.Await(t.Context(), "summary", token))
}

// A token may name events on topics that the consumer does not read. They are not waited for unless the caller names the topic.
func TestAwaitLeavesOutTopicsWithoutASubscription(t *testing.T) {
	sink := &wire{}
	w := newWorld(t, sink)
	token := announce(t, w)
	w.db.Exec("INSERT INTO inbox_topic (topic, consumer, subscribed) VALUES ('order', 'summary', true), ('mail', 'another', true), ('mail', 'summary', false)")
	once := w.box.Wrap("summary", messaging.HandlerFunc(w.effect))
	require.NoError(t, once.Handle(t.Context(), sink.message(0)))
	require.NoError(t, once.Handle(t.Context(), sink.message(1)))
	require.NoError(t, w.box.Await(t.Context(), "summary", token))

	waiting := make(chan error)
	go func() { waiting <- w.box.Await(t.Context(), "summary", token, "order", "mail") }()
	require.NoError(t, once.Handle(t.Context(), sink.message(2)))
	require.NoError(t, <-waiting)
}

// looking is called before each statement.
type looking func(sql string)

func (l looking) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	l(q.SQL)
	return ctx
}
func (looking) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestAwaitOfWhatNeverComes(t *testing.T) {
	sink := &wire{}
	w := newWorld(t, sink)
	token := announce(t, w)
	refuse := w.box.Wrap("summary", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		return messaging.Permanent(errors.New("no such customer"))
	}))
	require.NoError(t, refuse.Handle(t.Context(), sink.message(1)))
	require.ErrorIs(t, w.box.Await(t.Context(), "summary", token), inbox.ErrGivenUp)
	require.ErrorIs(t, w.box.Await(t.Context(), "summary", "made up"), event.ErrInvalid)
	require.NoError(t, w.box.Await(t.Context(), "summary", ""), "nothing was announced")
}

// Who gives up waiting within a unit can go on with it, as always.
func TestAwaitWithinAUnitLeavesItsTransactionAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &wire{})
	token := announce(t, w)
	lock, err := w.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = lock.Exec("LOCK TABLE inbox")
	require.NoError(t, err)
	require.NoError(t, w.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		bounded, cancel := context.WithCancel(ctx)
		waiting := make(chan error)
		go func() { waiting <- w.box.Await(bounded, "summary", token) }()
		await.True(t, func() bool {
			return column[int](t, w.db.DB, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'inbox'::regclass")[0] == 1
		}, "a statement that waits for the lock of the inbox")
		cancel()
		require.NoError(t, lock.Rollback())
		require.ErrorIs(t, <-waiting, context.Canceled)
		_, err := u.DB().NewRaw("INSERT INTO effects (what) VALUES ('fallback')").Exec(ctx)
		return err
	}, uow.WithoutRetry()))
	require.Equal(t, []string{"fallback"}, w.effects())
}
