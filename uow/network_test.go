package uow_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/uow"
)

// network is a link between a pool and the server that can be cut.
type network struct {
	link *linktest.Link
	pool *bun.DB
}

func (s *service) network(t *testing.T) *network {
	t.Helper()
	link := linktest.New(t, s.DSN)
	pool, err := sql.Open("pgx", link.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return &network{link, bun.NewDB(pool, pgdialect.New())}
}

// mendWhenAsked mends the network as soon as the unit begins to ask what became of its COMMIT.
func (n *network) mendWhenAsked(s *service) {
	s.logs.on = func(text string) {
		if strings.Contains(text, "the connection broke during COMMIT") {
			n.link.Mend()
		}
	}
}

// cutter is a sink that breaks the network as the last thing before COMMIT.
type cutter struct {
	*probeSink

	cut func()
}

func (s *cutter) Enqueue(ctx context.Context, tx bun.IDB, q *unit.Queue, evs []event.Envelope) error {
	err := s.probeSink.Enqueue(ctx, tx, q, evs)
	s.cut()
	return err
}

func TestAnswerToCommitLostOnTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		cut       func(n *network)
		timeout   time.Duration // what was swallowed is given up after this time
		committed bool
	}{
		"answer cut off":   {func(n *network) { n.link.Limit(linktest.ToClient, 0) }, time.Minute, true},
		"answer swallowed": {func(n *network) { n.link.Silence(linktest.ToClient) }, time.Second, true},
		"COMMIT cut off":   {func(n *network) { n.link.Limit(linktest.ToServer, 0) }, time.Minute, false},
		"COMMIT torn":      {func(n *network) { n.link.Limit(linktest.ToServer, 3) }, time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			patiently(t, c.timeout, func(timeout time.Duration) bool {
				s := newService(t, nil)
				n := s.network(t)
				n.mendWhenAsked(s)
				sink := &cutter{&probeSink{tableSink: s.sink}, func() { c.cut(n) }}
				hooked, err := change(t.Context(), s.manager(&uow.Config{CommitTimeout: timeout}, n.pool, sink), newAccount("a", "one"), "x")
				require.Contains(t, s.logs.all(), "the connection broke during COMMIT")
				if c.committed && !hooked {
					return false
				}
				if !c.committed {
					require.False(t, hooked)
					require.ErrorIs(t, err, uow.ErrConnectionLost)
					s.requireNothing(t)
					return true
				}
				require.NoError(t, err)
				require.Equal(t, []string{"x"}, s.notes(t), "exactly once")
				require.Equal(t, []string{"account a v1 one"}, s.sunk(t))
				return true
			})
		})
	}
}

// The network stays away. All there is to say is how to find out.
func TestAnswerToCommitLostForGood(t *testing.T) {
	patiently(t, 300*time.Millisecond, func(timeout time.Duration) bool {
		s := newService(t, nil)
		n := s.network(t)
		sink := &cutter{&probeSink{tableSink: s.sink}, func() { n.link.Limit(linktest.ToClient, 0) }}
		_, err := change(t.Context(), s.manager(&uow.Config{CommitTimeout: timeout}, n.pool, sink), newAccount("a", "one"), "x")
		var unknown *uow.CommitUnknownError
		require.ErrorAs(t, err, &unknown)
		status := "in progress"
		for status == "in progress" {
			status = lines(t, s, "SELECT pg_xact_status(?::text::xid8)", unknown.XID)[0]
		}
		return status == "committed" // what came too late was cut off as well
	})
}

// The network is cut anywhere. Then either there is an error and nothing is stored, or there is none and all of it is.
func TestNetworkCutAnywhere(t *testing.T) {
	s := newService(t, nil)
	n := s.network(t)
	n.mendWhenAsked(s)
	units := s.manager(nil, n.pool, s.sink)
	committed, failed := 0, 0
	for seed := range nightly.Seeds(t, 10_000, 10_000) {
		if committed+failed >= nightly.N(120, 2000) && s.lost() > 0 {
			break
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		n.link.Mend()
		text := fmt.Sprint("seed ", seed)
		await.True(t, func() bool { return n.pool.PingContext(t.Context()) == nil }, "the network is mended")
		if rng.IntN(2) == 0 {
			n.link.Limit(linktest.ToClient, rng.IntN(800))
		} else {
			n.link.Limit(linktest.ToServer, rng.IntN(900))
		}
		_, err := change(t.Context(), units, newAccount(text, "one"), text)
		n.link.Mend()
		require.NotErrorIs(t, err, uow.ErrCommitUnknown, "seed %d", seed)
		stored := append(lines(t, s, "SELECT text FROM notes WHERE text = ?", text),
			lines(t, s, "SELECT line FROM sunk WHERE line = ?", "account "+text+" v1 one")...)
		if err == nil {
			committed++
			require.Len(t, stored, 2, "seed %d", seed)
		} else {
			failed++
			require.Empty(t, stored, "seed %d: %v", seed, err)
		}
		require.Zero(t, n.pool.Stats().InUse, "seed %d", seed)
	}
	t.Logf("of %d units %d were committed and %d were not; %d answers to COMMIT were lost", committed+failed, committed, failed, s.lost())
	require.NotZero(t, s.lost(), "no answer to COMMIT was lost")
	require.NotZero(t, committed)
	require.NotZero(t, failed)
}

// lost counts the answers to COMMIT that were lost so far. Where they are among the bytes depends on how long ids have become.
func (s *service) lost() int {
	return strings.Count(s.logs.all(), "the connection broke during COMMIT")
}

// COMMIT and its answer are cut at 500 points: no error means committed, an error means not, and nothing stays unknown.
// Half of the units send COMMIT alone, half of them in one round trip with the events.
func TestCommitCutAt500Points(t *testing.T) {
	var n *network
	s := newSaver(t, nil, func(s *service) *bun.DB {
		n = s.network(t)
		return n.pool
	})
	together := *n
	together.pool = pipelined(t, n.link.URL)
	n.mendWhenAsked(s.service)
	happened := map[string]int{}
	for seed := range nightly.Seeds(t, 500, 5000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		way, direction, bytes := n, linktest.Direction(rng.IntN(2)), rng.IntN(20)
		if seed%2 == 1 {
			way, bytes = &together, rng.IntN(120)
		}
		n.link.Mend()
		await.True(t, func() bool { return way.pool.PingContext(t.Context()) == nil }, "the network is mended")
		cut := func() { n.link.Limit(direction, bytes) }
		sink := uow.Sink(&cutter{&probeSink{tableSink: s.sink}, cut})
		if way == &together {
			sink = &batchSink{tableSink: s.sink, queue: func(*pgsql.Batch) { cut() }}
		}
		id := fmt.Sprint("seed ", seed)
		err := s.manager(nil, way.pool, sink).Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			return u.Save(ctx, newAccount(id, "one"))
		}, uow.WithoutRetry())
		n.link.Mend()
		require.NotErrorIs(t, err, uow.ErrCommitUnknown, id)
		stored := append(lines(t, s, "SELECT id FROM accounts WHERE id = ?", id),
			lines(t, s, "SELECT line FROM sunk WHERE line = ?", "account "+id+" v1 one")...)
		if err == nil {
			require.Len(t, stored, 2, id)
			happened["committed"]++
		} else {
			require.Empty(t, stored, "%s: %v", id, err)
			happened["not committed"]++
		}
		require.Zero(t, way.pool.Stats().InUse, id)
	}
	happened["answers lost"] = strings.Count(s.logs.all(), "the connection broke during COMMIT")
	t.Log(happened)
	require.Greater(t, happened["committed"], 50)
	require.Greater(t, happened["not committed"], 50)
	require.Greater(t, happened["answers lost"], 250)
}
