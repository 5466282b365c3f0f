package outboxdb_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// ear listens as a projector of another process does.
type ear struct {
	t    *testing.T
	conn *pgx.Conn
}

func listenTo(t *testing.T, db *pgtest.DB) *ear {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	var channel string
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT 'oncebox_outbox_' || tableoid FROM oncebox_settings`).Scan(&channel))
	_, err = conn.Exec(t.Context(), "LISTEN "+channel)
	require.NoError(t, err)
	return &ear{t: t, conn: conn}
}

// hear returns the payload of the next notification.
func (e *ear) hear() string {
	e.t.Helper()
	ctx, done := await.Context(e.t.Context(), e.t, "a notification")
	defer done()
	n, err := e.conn.WaitForNotification(ctx)
	require.NoError(e.t, err)
	return n.Payload
}

// hears has something announced and returns the payload. A store gives a NOTIFY up after a second, so a machine that stood
// still gets another one.
func (e *ear) hears(announce func()) (payload string) {
	e.t.Helper()
	for range 12 {
		announce()
		ctx, cancel := context.WithTimeout(e.t.Context(), 10*time.Second)
		n, err := e.conn.WaitForNotification(ctx)
		cancel()
		if err == nil {
			return n.Payload
		}
		require.ErrorIs(e.t, err, context.DeadlineExceeded)
	}
	require.Fail(e.t, "nothing was heard")
	return ""
}

// count returns how many notifications came up to the one with payload end.
func (e *ear) count(end string) int {
	e.t.Helper()
	n := 0
	for e.hear() != end {
		n++
	}
	return n
}

// shout sends a notification of the test's own.
func shout(t *testing.T, db bun.IDB, payload string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `SELECT pg_notify('oncebox_outbox_' || tableoid, ?) FROM oncebox_settings`, payload)
	require.NoError(t, err)
}

func TestACommittedUnitIsAnnounced(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Outbox)
	ear := listenTo(t, db)
	units := uow.New(db.DB, &uow.Config{Source: "test"}, outbox.NewStore(db.DB, &outbox.Config{Schema: db.Schema}))
	_, lanes, named := strings.Cut(ear.hears(func() {
		require.NoError(t, units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
			return u.Add("order", []byte("1"), event.WithType("a"), event.WithOrderingKey("k"))
		}))
	}), " ")
	require.True(t, named, "which store says so, and in which lanes")
	var lane int
	require.NoError(t, db.NewSelect().Table("outbox").Column("lane").Limit(1).Scan(t.Context(), &lane))
	require.Equal(t, strconv.FormatUint(1<<lane, 16), lanes)
}

func TestManyCommitsAreAnnouncedTogether(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Outbox)
	ear := listenTo(t, db)
	pool := db.Another(t)
	store := outbox.NewStore(pool, nil)
	start := time.Now()
	for range 10_000 {
		store.Wake()
	}
	require.NotEmpty(t, ear.hears(store.Wake))
	// Each NOTIFY but the first is 2 ms after the one before, and one is perhaps on its way: however slow this machine is.
	atMost := int(time.Since(start)/(2*time.Millisecond)) + 2
	await.True(t, func() bool { return pool.Stats().InUse == 0 }, "no NOTIFY is on its way")
	shout(t, db, "end")
	require.LessOrEqual(t, 1+ear.count("end"), atMost)
}

// The store's pool is closed, so it can notify nobody; units run on another one.
func TestACommitDoesNotFailBecauseNobodyCanBeNotified(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Outbox)
	broken := db.Another(t)
	require.NoError(t, broken.Close())
	quiet := &outbox.Config{Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}}
	units := uow.New(db.DB, &uow.Config{Source: "test"}, outbox.NewStore(broken, quiet))
	for range 5 {
		require.NoError(t, units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error { return u.Add("order", []byte("1"), event.WithType("a")) }))
	}
	n, err := db.NewSelect().Table("outbox").Count(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 5, n)
}

// listening runs Listen and returns a channel that gets a token per wake-up.
func listening(t *testing.T, store *outbox.Store) (woken chan struct{}, ended chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	woken, ended = make(chan struct{}, 1000), make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- store.Handle().Listen(ctx, func(outboxdb.LaneSet) { woken <- struct{}{} }, func() {})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return woken, ended
}

func TestAStoreHearsOthersAndNotItself(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Outbox)
	ear := listenTo(t, db)
	// One finds its tables by name, the other by search_path: they meet all the same.
	mine, other := outbox.NewStore(db.DB, nil), outbox.NewStore(db.Another(t), &outbox.Config{Schema: db.Schema})
	mine.Handle().ProbeAfter = time.Hour
	woken, _ := listening(t, mine)
	await.Receive(t, woken, "at the start, for what was committed before")

	for range 20 {
		ear.hears(mine.Wake) // it is sent; what comes later is behind it
	}
	ear.hears(other.Wake)
	await.Receive(t, woken, "the other store's")
	shout(t, db, "")
	await.Receive(t, woken, "the operator's")
	require.Empty(t, woken, "nobody is woken twice by one commit")
}

func TestListenTakesNoConnectionOfThePool(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Outbox)
	pool := db.Another(t)
	pool.SetMaxOpenConns(1)
	woken, _ := listening(t, outbox.NewStore(pool, nil))
	await.Receive(t, woken, "at the start")
	require.NoError(t, pool.PingContext(t.Context()))
	require.Zero(t, pool.Stats().InUse)
}

func TestStoresThatCannotListenSaySo(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Outbox)
	for _, cfg := range []*outbox.Config{{Pooler: true}, {PollOnly: true}} {
		err := outbox.NewStore(db.DB, cfg).Handle().Listen(t.Context(), func(outboxdb.LaneSet) { t.Error("it listens") }, func() {})
		require.ErrorIs(t, err, outboxdb.ErrCannotListen)
	}
}

// A firewall that forgets a connection notifies neither side. Without a probe, Listen would wait for ever.
func TestAConnectionThatWentSilentIsGivenUp(t *testing.T) {
	t.Parallel() // it does little but wait
	db := pgtest.Migrated(t, pgtest.Outbox)
	through := newSwallower(t, db.DSN)
	patient, hasty := outbox.NewStore(through.open(t), nil), outbox.NewStore(through.open(t), nil)
	patient.Handle().ProbeAfter, patient.Handle().ProbeTimeout = 50*time.Millisecond, time.Hour
	woken, _ := listening(t, patient)
	await.Receive(t, woken, "at the start")
	await.Receive(t, woken, "after a probe that was answered")

	hasty.Handle().ProbeAfter, hasty.Handle().ProbeTimeout = 50*time.Millisecond, 200*time.Millisecond
	woken, ended := listening(t, hasty)
	await.Receive(t, woken, "at the start")
	through.swallow.Store(true)
	require.ErrorContains(t, await.Receive(t, ended, "the end of Listen"), "outbox: listen")
}

// swallower stands before PostgreSQL and can stop passing on what comes, without a word.
type swallower struct {
	swallow atomic.Bool
	dsn     string
	server  string
	passing sync.WaitGroup
}

func newSwallower(t *testing.T, dsn string) *swallower {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	s := &swallower{server: u.Host}
	u.Host = l.Addr().String()
	s.dsn = u.String()
	ctx, cancel := context.WithCancel(context.Background())
	s.passing.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			s.passing.Go(func() { s.pass(ctx, client) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		s.passing.Wait()
	})
	return s
}

func (s *swallower) open(t *testing.T) *bun.DB {
	t.Helper()
	return (&pgtest.DB{DSN: s.dsn}).Another(t)
}

// pass ends when the server closes the connection, or with ctx.
func (s *swallower) pass(ctx context.Context, client net.Conn) {
	defer client.Close()
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", s.server)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = errors.Join(client.Close(), server.Close()) })()
	s.passing.Go(func() {
		defer server.Close()
		_, _ = io.Copy(&mouth{s, server}, client)
	})
	_, _ = io.Copy(client, server)
}

// mouth passes on what is written to it, until it swallows.
type mouth struct {
	s  *swallower
	to io.Writer
}

func (m *mouth) Write(p []byte) (int, error) {
	if m.s.swallow.Load() {
		return len(p), nil
	}
	return m.to.Write(p)
}
