package projector_test

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/internal/logbook"
)

// A server that takes a statement and never answers, while the connection stays open, is given up after a lease
// at the latest.
func TestNoStatementWaitsForEver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ statement, failed string }{ // what only this statement contains
		"partitions":  {"outbox_make_partition", "partitions could not be made"},
		"heartbeat":   {"INSERT INTO outbox_projector", "lease coordinator failed"},
		"observe":     {look, workerFailed},
		"load blocks": {"coalesce(b.state, '')", workerFailed},
		"fetch":       {"ORDER BY x.seq LIMIT c.quota", workerFailed},
		"next due":    {"min(h.retry_after)", workerFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they do nothing but wait
			f := newFixture(t)
			wire := f.wire()
			var silent atomic.Bool
			store := f.through(func(statement string, _ bool) {
				if strings.Contains(statement, c.statement) && silent.CompareAndSwap(false, true) {
					wire.Silence(linktest.ToClient)
				}
			}, func(u *url.URL) { u.Host = wire.Addr })
			log := &logbook.Book{}
			cfg := quick()
			cfg.Workers, cfg.Lease, cfg.Renew, cfg.PublishTimeout = 1, 2*time.Second, 200*time.Millisecond, 100*time.Millisecond
			cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(log, nil))
			p := f.relay(f.pub, cfg, store)
			f.run(p)
			f.eventually("it is given up", func() bool { return silent.Load() && log.Count(c.failed) > 0 })
			wire.Mend()
			f.add("a", "later")
			f.eventually("the projector goes on", f.published("later"))
		})
	}
}

// A renewal that is never answered is given up while the leases last: the next one comes in time, and another projector gets
// no lane. A process that stands still for half of a lease loses lanes as well: then a longer lease is tried.
func TestRenewalThatHangsLosesNoLane(t *testing.T) {
	t.Parallel()
	for lease := 12 * time.Second; !keepsLanesBesideAHangingRenewal(t, lease); lease *= 2 {
		require.Less(t, lease, 7*time.Minute, "lanes were lost, however long the lease")
	}
}

func keepsLanesBesideAHangingRenewal(t *testing.T, lease time.Duration) bool {
	t.Helper()
	f := newFixture(t)
	wire := f.wire()
	var armed, silent atomic.Bool
	store := f.through(func(statement string, _ bool) {
		if strings.Contains(statement, "UPDATE outbox_lane l SET lease_until") && armed.Load() && silent.CompareAndSwap(false, true) {
			wire.Silence(linktest.ToClient)
		}
	}, func(u *url.URL) { u.Host = wire.Addr })
	log := &logbook.Book{}
	cfg := quick()
	cfg.Name, cfg.Lease, cfg.Renew, cfg.PublishTimeout = "hangs", lease, 200*time.Millisecond, time.Second
	other := cfg
	other.Name = "other"
	cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(log, nil))
	f.run(f.relay(f.pub, cfg, store))
	f.owns("hangs", 64)
	f.run(f.relay(f.pub, other, f.another()))
	f.owns("hangs", 32)
	f.owns("other", 32)
	armed.Store(true)
	const epochs = "SELECT string_agg(lane || ' ' || epoch, ',' ORDER BY lane) FROM outbox_lane"
	var before, after string
	require.NoError(t, f.db.QueryRow(epochs).Scan(&before))
	f.eventually("the renewal is given up", func() bool { return silent.Load() && log.Count("lease coordinator failed") > 0 })
	wire.Mend()
	f.eventually("the leases are renewed", func() bool {
		return f.rows("outbox_lane WHERE owner = 'hangs' AND lease_until > clock_timestamp() + ?::interval", (lease*5/6).String()) == 32
	})
	require.NoError(t, f.db.QueryRow(epochs).Scan(&after))
	return before == after
}

// A server that is silent from the start is an error that says so.
func TestAStartDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	wire := f.wire()
	store := f.through(func(string, bool) { wire.Silence(linktest.ToClient) }, func(u *url.URL) { u.Host = wire.Addr })
	cfg := quick()
	cfg.Lease, cfg.Renew, cfg.PublishTimeout = 1500*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
	cfg.DatabaseWait = -1
	p := f.relay(f.pub, cfg, store)
	for _, run := range []func(context.Context) error{p.Run, p.RunOnce} {
		err := run(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "projector: start: the database has not answered for 1.5s: look whether it hangs")
	}
}

// A database that is slow to answer is not asked by one worker while another still waits: the answers could be taken in the
// wrong order, and look as if the sequence had gone back.
func TestOneLookAtTheSequenceAtATime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var looking sync.Mutex
	var looks, together atomic.Int32
	store := f.through(func(statement string, _ bool) {
		if !strings.Contains(statement, look) {
			return
		}
		if !looking.TryLock() {
			together.Add(1)
			return
		}
		defer looking.Unlock()
		<-time.After(300 * time.Millisecond) // a slow answer: it takes longer than the time between two looks
		looks.Add(1)
	}, nil)
	cfg := quick()
	p := f.relay(f.pub, cfg, store)
	f.run(p)
	f.eventually("it was looked at", func() bool { return looks.Load() >= 3 })
	require.Zero(t, together.Load())
}
