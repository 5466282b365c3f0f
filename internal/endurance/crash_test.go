//go:build unix && nightly

package endurance

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgtest"
)

const (
	// crashes is how many crashes there are. A few rarely find a defect: with the proof by rows taken out, 40 crashes of a session lost
	// 13 answers.
	crashes = 60
	// stillness is the time after which a message that was sent and has had no effect is missing.
	stillness = time.Minute
)

// The whole server is killed under load, again and again, while others write as well: they get the ids of transactions that the crash
// has taken back. No order whose client was told 201 is missing, and no message that was settled has not had its effect.
func TestServerIsKilledUnderOrders(t *testing.T) {
	testCrashes(t, "server", func(p *pgtest.Own) { p.Crash(t) })
}

// The same with one session that is killed, as the system does where memory is short. The server recovers as from a crash, and the
// start of its process stays the same.
func TestSessionIsKilledUnderOrders(t *testing.T) {
	testCrashes(t, "backend", func(p *pgtest.Own) {
		await.True(t, func() bool {
			conn, err := pgx.Connect(t.Context(), p.URL)
			if err != nil {
				return false // it recovers from the last one
			}
			defer conn.Close(t.Context())
			var pid int
			err = conn.QueryRow(t.Context(), `SELECT pid FROM pg_stat_activity
				WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY state = 'active' DESC, random() LIMIT 1`).Scan(&pid)
			return err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil
		}, "the server takes a connection, and has a session to kill")
	})
}

func testCrashes(t *testing.T, kind string, crash func(*pgtest.Own)) {
	p := pgtest.Start(t, nil)
	db := p.Open(t)
	db.SetMaxIdleConns(-1) // none is left over from before a crash
	s := openShop(t, db.DSN)
	stop, quiet := s.load(), others(t, db.DSN)
	for range crashes {
		s.moreAnswers(ordersPerSecond / 2)
		crash(p)
	}
	s.moreAnswers(ordersPerSecond)
	stop()
	quiet()
	lost, missing := s.verify(db)
	t.Logf("crash kind=%s rounds=%d orders=%d answers_without_rows=%d effects_missing=%d unknown=%d told_unknown=%d",
		kind, crashes, s.count.Load(), lost, missing, s.unknown(), s.unsure.Load())
	require.Zero(t, lost, "orders whose clients were told 201")
	require.Zero(t, missing, "messages that were settled")
}

// verify counts the answers without an order, and, when the consumer has come to its end, the events without an effect.
func (s *shop) verify(db *pgtest.DB) (lost, missing int) {
	s.t.Helper()
	ctx := context.WithoutCancel(s.t.Context())
	count := func(query string) (n int, err error) {
		err = db.NewRaw(query).Scan(ctx, &n)
		return n, err
	}
	// Events that the crash made unsent again may have been handled before. Events that were sent and are
	// gone will not come again.
	const without = ` FROM outbox_messages m WHERE NOT EXISTS (SELECT FROM inbox i WHERE i.message_key = m.id)`
	still := time.Now() // since then nothing was left that comes, and nothing came
	await.True(s.t, seldom(func() bool {
		before := missing
		n, err := count("SELECT count(*)" + without + " AND status <> 'SENT'")
		sent, sentErr := count("SELECT count(*)" + without + " AND status = 'SENT'")
		parked, parkedErr := count("SELECT count(*) FROM inbox_parked")
		if missing = sent; errors.Join(err, sentErr, parkedErr) != nil || n+parked > 0 || sent != before {
			still = time.Now()
			return false
		}
		return sent == 0 || time.Since(still) > stillness
	}), "the consumer is through")
	placed, err := count("SELECT count(*) FROM orders")
	require.NoError(s.t, err)
	effects, err := count("SELECT coalesce(sum(orders_placed), 0) FROM customer_summary")
	require.NoError(s.t, err)
	require.Equal(s.t, placed-missing, effects, "each event has its effect once")

	var ids []string
	require.NoError(s.t, db.NewRaw("SELECT id::text FROM orders").Scan(ctx, &ids))
	there := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		there[id] = struct{}{}
	}
	s.answered.Range(func(id, at any) bool {
		if _, is := there[id.(string)]; !is {
			lost++
			s.t.Logf("order %s was answered at %s and is not there", id, at.(time.Time).Format(time.RFC3339Nano))
		}
		return true
	})
	return lost, missing
}

// others write to tables of their own, as fast as ids of transactions go.
func others(t *testing.T, dsn string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for range 4 {
		writing.Go(func() {
			for ctx.Err() == nil {
				writeAlone(ctx, dsn)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		writing.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// writeAlone writes until its connection breaks.
func writeAlone(ctx context.Context, dsn string) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		_ = backoff.Wait(ctx, 5*time.Millisecond) // the caller looks at ctx
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS elsewhere (n bigint); SET synchronous_commit = off")
	for n := 0; err == nil && ctx.Err() == nil; n++ {
		_, err = conn.Exec(ctx, "INSERT INTO elsewhere VALUES ($1)", n)
		_ = backoff.Wait(ctx, 2*time.Millisecond) // the loop looks at ctx
	}
}
