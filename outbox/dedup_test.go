package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

func TestSecondEventOfADedupKeyIsANoOp(t *testing.T) {
	for _, pooler := range []bool{false, true} {
		f := newFixture(t, &outbox.Config{Pooler: pooler})
		first := f.addOnce("first", "import-1")
		require.Equal(t, first, f.addOnce("second", "import-1"), "the id of the one that is stored")
		other := f.addOnce("of another key", "import-2")
		require.NotEqual(t, first, other)
		stranger := f.addOnce("of another tenant", "import-1", event.WithTenantID("acme"))
		require.NotEqual(t, first, stranger)
		f.Record("a", "without a key")
		f.Record("a", "without a key again")
		require.Equal(t, map[string]string{
			"first": "NEW/0", "of another key": "NEW/0", "of another tenant": "NEW/0", "without a key": "NEW/0", "without a key again": "NEW/0",
		}, f.Statuses())
		require.Equal(t, 1, f.Count("outbox_dedup WHERE repeats = 1 AND event_id = ?", first))
	}
}

func TestDedupKeyWithinOneFlush(t *testing.T) {
	f := newFixture(t, nil)
	envelope := func(name, key string) event.Envelope {
		return event.Envelope{
			ID: newID(t), Type: name, Source: "test", TenantID: "default", Topic: "order", OccurredAt: testTime,
			Delivery: event.Delivery{DedupKey: key},
		}
	}
	evs := []event.Envelope{envelope("first", "k"), envelope("plain", ""), envelope("second", "k")}
	require.ErrorContains(t, f.Flush(t.Context(), f.DB.DB, evs), "a *bun.DB may be none")
	f.Commit(func(tx bun.Tx) { require.NoError(t, f.Flush(t.Context(), tx, evs)) })
	require.Equal(t, map[string]string{"first": "NEW/0", "plain": "NEW/0"}, f.Statuses())
	require.Equal(t, evs[0].ID, evs[2].ID)
	require.NotZero(t, evs[0].Sequence)
	require.NotZero(t, evs[1].Sequence)
	require.Zero(t, evs[2].Sequence, "not stored")

	again := []event.Envelope{envelope("third", "k")}
	f.Commit(func(tx bun.Tx) {
		var q unit.Queue
		require.NoError(t, f.Enqueue(t.Context(), tx, &q, again))
		require.Zero(t, q.Len())
		require.NotEmpty(t, q.XID, "a flush that stores nothing proves all the same that the transaction is alive")
	})
	require.Equal(t, evs[0].ID, again[0].ID)
}

func TestDedupKeyOfATransactionThatRolledBackIsFree(t *testing.T) {
	f := newFixture(t, nil)
	tx, err := f.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	lost, err := f.Add(t.Context(), tx, "order", nil, event.WithType("lost"), event.WithDedupKey("k"))
	require.NoError(t, err)

	second := make(chan string)
	go func() {
		second <- f.addOnce("kept", "k")
	}()
	f.AwaitLocks("outbox_dedup", 1, "a flush waits for a key") // it does not know yet whether it is the second
	require.NoError(t, tx.Rollback())
	require.NotEqual(t, lost, <-second)
	require.Equal(t, map[string]string{"kept": "NEW/0"}, f.Statuses())
}

func TestSecondEventWaitsForTheFirstOnesCommit(t *testing.T) {
	f := newFixture(t, nil)
	tx, err := f.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	first, err := f.Add(t.Context(), tx, "order", nil, event.WithType("first"), event.WithDedupKey("k"))
	require.NoError(t, err)

	second := make(chan string)
	go func() {
		second <- f.addOnce("second", "k")
	}()
	f.AwaitLocks("outbox_dedup", 1, "a flush waits for a key")
	require.NoError(t, tx.Commit())
	require.Equal(t, first, <-second)
	require.Equal(t, map[string]string{"first": "NEW/0"}, f.Statuses())
}

func TestDedupKeysAreForgottenAfterTheirWindow(t *testing.T) {
	f := newFixture(t, &outbox.Config{DedupRetention: time.Hour})
	f.addOnce("old", "old")
	f.addOnce("young", "young")
	f.addOnce("used", "used")
	_, err := f.DB.Exec("UPDATE outbox_dedup SET created_at = created_at - interval '61 minutes' WHERE dedup_key <> 'young'")
	require.NoError(t, err)

	// A flush that drops its event for the sake of a key keeps that key until it commits.
	tx, err := f.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = f.Add(t.Context(), tx, "order", nil, event.WithType("dropped"), event.WithDedupKey("used"))
	require.NoError(t, err)
	require.NoError(t, f.Clean(t.Context()))
	require.Equal(t, 0, f.Count("outbox_dedup WHERE dedup_key = 'old'"))
	require.Equal(t, 2, f.Count("outbox_dedup"))
	require.NoError(t, tx.Commit())

	f.addOnce("again", "old")
	require.Contains(t, f.Statuses(), "again")
}

// addOnce commits an event with a dedup key and returns the id that Add gave.
func (f *fixture) addOnce(name, key string, opts ...event.AddOption) (id string) {
	f.Commit(func(tx bun.Tx) {
		var err error
		id, err = f.Add(f.T.Context(), tx, "order", nil, append(opts, event.WithType(name), event.WithDedupKey(key))...)
		require.NoError(f.T, err)
	})
	return id
}

// A unit whose flush shares a round trip with COMMIT takes the keys before it, and commits what else it did even if all its
// events are repeats. Above READ COMMITTED the second of two at once is a serialization failure, which is tried again.
func TestDedupKeysInUnitsOfWork(t *testing.T) {
	f := newFixture(t, nil)
	cfg, err := pgx.ParseConfig(f.DB.DSN)
	require.NoError(t, err)
	pool := sql.OpenDB(pgsql.NewConnector(*cfg))
	t.Cleanup(func() { _ = pool.Close() })
	registry := event.NewRegistry()
	event.Register[counted](registry)
	units := uow.New(bun.NewDB(pool, pgdialect.New()), &uow.Config{Source: "test", Registry: registry}, f.Store)
	_, err = f.DB.Exec("CREATE TABLE counters (id text PRIMARY KEY, version bigint NOT NULL)")
	require.NoError(t, err)

	c := &counter{ID: "c"}
	for range 3 {
		require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			c.Record(counted{})
			require.NoError(t, u.Add("report", []byte("1"), event.WithType("report"), event.WithDedupKey("monthly")))
			return u.Save(ctx, c)
		}))
	}
	require.EqualValues(t, 3, c.Version)
	require.Equal(t, 3, f.Count("outbox WHERE event_type = 'counted'"))
	require.Equal(t, 1, f.Count("outbox WHERE event_type = 'report'"))

	for range 2 {
		require.NoError(t, units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			_, err := u.DB().NewRaw("UPDATE counters SET version = version + 10").Exec(ctx)
			require.NoError(t, err)
			return u.Add("report", []byte("1"), event.WithType("alone"), event.WithDedupKey("alone"))
		}))
	}
	require.Equal(t, 1, f.Count("outbox WHERE event_type = 'alone'"))
	require.Equal(t, 1, f.Count("counters WHERE version = 23"))

	tries := make(chan int, 2)
	begun := sync.WaitGroup{}
	begun.Add(2)
	for range 2 {
		go func() {
			n := 0
			err := units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				n++
				_, err := u.DB().NewRaw("SELECT FROM counters").Exec(ctx) // takes the snapshot
				if n == 1 {
					begun.Done()
					begun.Wait()
				}
				return errors.Join(err, u.Add("report", []byte("1"), event.WithType("both"), event.WithDedupKey("both")))
			}, uow.WithIsolation(sql.LevelRepeatableRead))
			if err != nil {
				n = -1
			}
			tries <- n
		}()
	}
	require.Equal(t, 3, <-tries+<-tries)
	require.Equal(t, 1, f.Count("outbox WHERE event_type = 'both'"))
}

type counted struct{}

func (counted) EventType() string { return "counted" }

type counter struct {
	event.Recorder `bun:"-"`

	ID      string `bun:",pk"`
	Version int64
}

func (*counter) AggregateType() string     { return "counter" }
func (c *counter) AggregateID() string     { return c.ID }
func (c *counter) AggregateVersion() int64 { return c.Version }
