package inbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// A handler that takes too long is cancelled, its work is undone, and the try counts: on the first try, from the
// parking table, in a batch, and under a lease.
func TestHandlerThatTakesTooLongHasFailed(t *testing.T) {
	t.Parallel()
	const timeout = 250 * time.Millisecond
	for name, wrap := range map[string]func(*inbox.Inbox, messaging.Handler) messaging.Handler{
		"plain": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler { return box.Wrap("billing", h) },
		"batch": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler {
			b := box.Wrap("billing", h).(messaging.BatchHandler)
			return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
				err := b.HandleBatch(ctx, []*messaging.Message{m, unordered("another of its batch")})
				if partly, ok := err.(*messaging.BatchError); ok { //nolint:errorlint // as a consumer does
					return partly.Failed[0]
				}
				return err
			})
		},
		"leased": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler { return box.WrapLeased("billing", h) },
		"parked": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler {
			return box.Wrap("billing", h, inbox.StoreFirst())
		},
		"leased, parked": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler {
			return box.WrapLeased("billing", h, inbox.StoreFirst())
		},
		"by option": func(box *inbox.Inbox, h messaging.Handler) messaging.Handler {
			return box.Wrap("billing", h, inbox.HandlerTimeout(timeout))
		},
	} {
		for _, swallows := range []bool{false, true} {
			if swallows && name != "plain" && name != "leased" {
				continue
			}
			t.Run(name+map[bool]string{true: ", and the handler swallows it"}[swallows], func(t *testing.T) {
				t.Parallel() // they do nothing but wait
				w := newWorld(t)
				box := w.hasty(func(c *inbox.Config) {
					c.Retry.MaxAttempts, c.CrashGuard, c.HandlerTimeout = 3, -1, timeout
					if name == "by option" {
						c.HandlerTimeout = -1
					}
				})
				h := wrap(box, messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
					if m.ID != "slow" {
						return nil
					}
					_ = w.effect(ctx, m)
					<-ctx.Done()
					if swallows {
						return nil
					}
					return ctx.Err()
				}))
				runParked(t, box)
				settleLater(t, h, ordered("slow", "o1"))
				await.True(t, func() bool { return len(w.dead()) == 1 }, "a dead letter")
				require.Equal(t, 3, w.dead()[0].Attempts)
				require.Contains(t, w.dead()[0].Error, "Config.HandlerTimeout")
				if name != "leased" && name != "leased, parked" {
					require.Empty(t, w.effects())
				}
			})
		}
	}
}

// The limit is for one call of a handler. Only a handler that gets several messages in one call has it for all of them.
func TestMessagesOfABatchHaveTheHandlerTimeoutEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const messages, each, timeout = 14, 300 * time.Millisecond, 4 * time.Second // all together take longer than the timeout
	box := w.hasty(func(c *inbox.Config) { c.CrashGuard, c.HandlerTimeout = -1, timeout })
	var calls atomic.Int64
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		calls.Add(1)
		return backoff.Wait(ctx, each)
	}))
	var batch []*messaging.Message
	for n := range messages {
		batch = append(batch, ordered(fmt.Sprint(n), fmt.Sprint("o", n)))
	}
	require.NoError(t, h.(messaging.BatchHandler).HandleBatch(t.Context(), batch))
	require.EqualValues(t, messages, calls.Load(), "none was undone and handled again")
}

func TestHandlersOfParkedMessagesEndWhenTheyHaveHadTheDrainTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.DrainTimeout = -1 })
	began, cancelled := make(chan struct{}), make(chan bool, 1)
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
		close(began)
		select {
		case <-ctx.Done():
			cancelled <- true
			return ctx.Err()
		case <-time.After(25 * time.Second): // the default is longer
			cancelled <- false
			return nil
		}
	}), inbox.StoreFirst())
	require.NoError(t, h.Handle(t.Context(), ordered("m", "o1")))
	stop := runParked(t, box)
	<-began
	stop()
	require.True(t, <-cancelled)
	require.Equal(t, []string{"m"}, w.parked())
}

// A connection falls silent in the middle of a statement: it stays open, takes what is sent, and brings nothing. So it is when a host
// vanishes behind a proxy. Whichever statement it is, it is given up, and the message is handled over another connection.
func TestConsumerWorksAgainWhenAConnectionHasFallenSilent(t *testing.T) {
	t.Parallel()
	plain := func(box *inbox.Inbox, h messaging.Handler) messaging.Handler { return box.Wrap("billing", h) }
	leased := func(box *inbox.Inbox, h messaging.Handler) messaging.Handler { return box.WrapLeased("billing", h) }
	durable := func(box *inbox.Inbox, h messaging.Handler) messaging.Handler {
		return box.Wrap("billing", h, inbox.StoreFirst())
	}
	for name, c := range map[string]struct {
		statement string // what only this one contains
		wrap      func(*inbox.Inbox, messaging.Handler) messaging.Handler
		fails     bool
	}{
		"enter":               {"FROM inbox_enter(", plain, false},
		"the handler's own":   {"INSERT INTO effects", plain, false},
		"note a failure":      {"attempts = a.attempts + $5", plain, true},
		"park":                {"INSERT INTO inbox_parked", durable, false},
		"take the lease":      {"inbox_take_lease", leased, false},
		"load steps":          {"FROM inbox_step", leased, false},
		"settle":              {"DELETE FROM inbox_step", leased, false},
		"next due":            {"clock_timestamp()) * 1000000", durable, false},
		"claim keys":          {"FOR UPDATE SKIP LOCKED", durable, false},
		"take a head":         {"clock_timestamp() - unknown_since", durable, false},
		"enter a head":        {"RETURNING processed_at <> now()", durable, false},
		"lock of a head":      {"SELECT FROM pg_advisory_xact_lock", durable, false},
		"remove a head":       {"AND p.seq <> $3", durable, false},
		"a head that failed":  {"SET state = 'FAILED'", durable, true},
		"handler of a parked": {"INSERT INTO effects", durable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they do nothing but wait
			w := newWorld(t)
			line := &line{until: strings.Replace(c.statement, " inbox_", ` "`+w.db.Schema+`".inbox_`, 1)}
			units := uow.New(line.pool(t, w.db), &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: quiet()}})
			box := newBox(units, &inbox.Config{
				Retry:        inbox.RetryPolicy{Tries: 1, Policy: retry.Policy{Delay: time.Millisecond, MaxDelay: 5 * time.Millisecond}},
				PollInterval: 20 * time.Millisecond, CrashGuard: -1,
				HandlerTimeout: time.Second, LockTimeout: 500 * time.Millisecond, ParkedLease: 2 * time.Second, LeaseTTL: 2 * time.Second,
			})
			box.AnswersWithin(500 * time.Millisecond)
			var failed atomic.Bool
			h := c.wrap(box, messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
				if c.fails && failed.CompareAndSwap(false, true) {
					return errNotNow
				}
				effect := func(ctx context.Context, _ *uow.Unit) error {
					_, err := units.DB(ctx).NewRaw("INSERT INTO effects (what) VALUES (?)", m.ID).Exec(ctx)
					return err
				}
				if _, within := uow.FromContext(ctx); within {
					return effect(ctx, nil)
				}
				return inbox.StepInUnit(ctx, "effect", effect)
			}))
			runParked(t, box)
			handled := make(chan error, 1)
			go func() { handled <- handOver(t.Context(), h, ordered("m", "o1")) }()
			require.NoError(t, await.Receive(t, handled, "the message is handled"))
			w.awaitEffects(1)
			require.Equal(t, []string{"m"}, w.effects())
			require.True(t, line.fell.Load(), "the statement never came")
		})
	}
}

// handOver hands m over until it is handled. A statement that does not fit the tables never will, so its error ends the test at once.
func handOver(ctx context.Context, h messaging.Handler, m *messaging.Message) error {
	for try := *m; ; try.Attempt++ {
		if err := h.Handle(ctx, &try); err == nil || pgerr.IsMisfit(err) {
			return err
		}
		if err := backoff.Wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// line makes connections. The first connection that sends a given text falls silent.
type line struct {
	until string
	fell  atomic.Bool

	mu    sync.Mutex
	mutes []*mute
}

// pool is one as config.OpenDB makes it.
func (l *line) pool(t *testing.T, db *pgtest.DB) *bun.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.DSN)
	require.NoError(t, err)
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		nobody, _ := net.Pipe()
		m := &mute{Conn: c, line: l, nobody: nobody}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.mutes = append(l.mutes, m)
		return m, err
	}
	pool := sql.OpenDB(pgsql.NewConnector(*cfg))
	t.Cleanup(func() {
		_ = pool.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, m := range l.mutes {
			_ = m.nobody.Close() // or pgx waits for its last words
		}
	})
	return bun.NewDB(pool, pgdialect.New())
}

// mute is a connection that falls silent when it is to send the text. The server has heard of its end then, as of a vanished connection.
type mute struct {
	net.Conn

	line   *line
	silent atomic.Bool
	nobody net.Conn // it never says anything
}

func (m *mute) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(m.line.until)) && m.line.fell.CompareAndSwap(false, true) {
		m.silent.Store(true)
		_ = m.Conn.Close()
	}
	if m.silent.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

func (m *mute) Read(p []byte) (int, error) {
	if !m.silent.Load() {
		n, err := m.Conn.Read(p)
		if err == nil || !m.silent.Load() {
			return n, err
		}
	}
	return m.nobody.Read(p)
}

func (m *mute) SetDeadline(t time.Time) error     { return m.both(net.Conn.SetDeadline, t) }
func (m *mute) SetReadDeadline(t time.Time) error { return m.both(net.Conn.SetReadDeadline, t) }

func (m *mute) both(set func(net.Conn, time.Time) error, t time.Time) error {
	if err := set(m.nobody, t); err != nil || m.silent.Load() {
		return err
	}
	return set(m.Conn, t)
}

func (m *mute) Close() error {
	_ = m.nobody.Close()
	return m.Conn.Close()
}
