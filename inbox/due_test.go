package inbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// A parked message is tried when it is due: neither at the next poll, nor after a pause that follows an error.
func TestParkedMessageIsTriedWhenItIsDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log lines
	box := inbox.New(w.units, &inbox.Config{
		Retry: inbox.RetryPolicy{Tries: 1, Policy: retry.Policy{Delay: 300 * time.Millisecond}}, PollInterval: time.Hour,
		Telemetry: telemetry.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))},
	})
	h := box.Wrap("billing", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		if m.Attempt < 3 {
			return errNotNow
		}
		return w.effect(ctx, m)
	}))
	runParked(t, box)
	require.NoError(t, h.Handle(t.Context(), ordered("bad", "o1")))
	w.awaitEffects(1)
	require.NotContains(t, log.String(), "could not be looked for")
}

// A process stands still between its questions which keys are due and when the next one will be. A key that becomes due just
// then is not left until the next poll.
func TestKeyThatBecomesDueBetweenTwoQuestionsIsTried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.failed("a", "o1")
	cfg, err := pgx.ParseConfig(w.db.DSN)
	require.NoError(t, err)
	cfg.Tracer = &standstill{
		begin: sync.OnceFunc(func() { w.exec("UPDATE inbox_key SET due_at = clock_timestamp() + interval '1 day'") }),
		until: sync.OnceFunc(func() { w.exec("UPDATE inbox_key SET due_at = clock_timestamp()") }),
	}
	pool := sql.OpenDB(stdlib.GetConnector(*cfg))
	defer pool.Close()
	box := newBox(uow.New(bun.NewDB(pool, pgdialect.New()), &uow.Config{Source: "test",
		Telemetry: telemetry.Config{Logger: quiet()}}), &inbox.Config{PollInterval: time.Hour})
	tried := make(chan struct{})
	box.Wrap("billing", messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		close(tried)
		return nil
	}))
	stop := runParked(t, box)
	defer stop()
	await.Receive(t, tried, "the message is tried")
}

// However many keys wait, it is one entry of the index for each consumer.
func TestNextDueIsOneEntryOfTheIndex(t *testing.T) {
	w := newWorld(t)
	w.exec(`INSERT INTO inbox_key (consumer, key_lock, tenant_id, state, due_at)
		SELECT 'c' || i % 3, i, 't1', 'FAILED', now() + i * interval '1 s' FROM generate_series(1, 30000) i`)
	w.exec("VACUUM ANALYZE inbox_key")
	plan, err := w.box.ExplainNextDue(t.Context(), []string{"c0", "c1"})
	require.NoError(t, err)
	require.Regexp(t, `(?s)Limit .*Index (Only )?Scan using inbox_key_due`, plan)
	require.NotContains(t, plan, "Seq Scan")
	require.NotContains(t, plan, "Sort")
}

// standstill is in front of and behind each of the two questions.
type standstill struct{ begin, until func() }

type isQuestion struct{}

func (s *standstill) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	question := strings.Contains(q.SQL, "due AS MATERIALIZED") || strings.Contains(q.SQL, "min(due_at) - clock_timestamp()")
	if question {
		s.begin()
	}
	return context.WithValue(ctx, isQuestion{}, question)
}

func (s *standstill) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(isQuestion{}) == true {
		s.until()
	}
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
