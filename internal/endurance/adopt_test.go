//go:build unix && nightly

package endurance

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/adopt"
	"github.com/oncebox/oncebox/telemetry"
)

const (
	adoptKills      = 10
	adoptKeys       = 40
	adoptWriters    = 4   // processes of the service, which are deployed one after the other
	adoptSessions   = 6   // of each: one in twenty sleeps with the lock of its key, and others wait for it
	eventsPerSecond = 200 // that are committed, when the machine has the time

	oldTables = `
CREATE TABLE counters (id text PRIMARY KEY, n bigint NOT NULL DEFAULT 0);
CREATE TABLE old_outbox (id bigserial PRIMARY KEY, key text NOT NULL, n bigint NOT NULL, payload jsonb NOT NULL DEFAULT '{}', sent_at timestamptz);
CREATE INDEX ON old_outbox (id) WHERE sent_at IS NULL`

	oldMapping = `{table: old_outbox, id: "{id}", topic: thing, type: thing.changed, aggregate_type: thing, aggregate_id: "{key}", aggregate_version: "{n}",
		payload: "{payload}", order: [id], unsent: {sent_at: null}, mark: {sent_at: now()}}`
)

func newAdopter(ctx context.Context, db *bun.DB) (*adopt.Mover, error) {
	mapping, err := adopt.Read(strings.NewReader(oldMapping))
	if err != nil {
		return nil, err
	}
	return adopt.New(ctx, outbox.NewStore(db, &outbox.Config{Source: "endurance"}), mapping, &adopt.Config{BatchSize: 20, Interval: 20 * time.Millisecond})
}

// adopt is the life of a process that moves rows.
func (t *task) adopt(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	db, err := config.OpenDB(ctx, config.Config{DatabaseURL: t.Database, Telemetry: telemetry.Config{Logger: log}})
	if err != nil {
		return err
	}
	defer db.Close()
	m, err := newAdopter(ctx, db)
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// changer is the code of a service: it raises the counter of a key and announces the number, in the old table or with oncebox.
type changer struct {
	db    *bun.DB
	store *outbox.Store
	fresh atomic.Bool // new code
	done  *atomic.Int64
}

func (c *changer) change(ctx context.Context) error {
	key := fmt.Sprint(rand.IntN(adoptKeys))
	err := c.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		var n int64
		if err := tx.NewRaw("UPDATE counters SET n = n + 1 WHERE id = ? RETURNING n", key).Scan(ctx, &n); err != nil {
			return err
		}
		var err error
		if c.fresh.Load() {
			_, err = c.store.Add(ctx, tx, "thing", []byte("{}"), event.WithAggregate("thing", key, n), event.WithType("thing.changed"))
		} else {
			_, err = tx.ExecContext(ctx, "INSERT INTO old_outbox (key, n) VALUES (?, ?)", key, n)
		}
		if err != nil {
			return err
		}
		switch rand.IntN(20) {
		case 0:
			return errNotThisTime
		case 1:
			_, err = tx.ExecContext(ctx, "SELECT pg_sleep(random() / 5)") // its row becomes visible late
		}
		return err
	})
	if err == nil {
		c.done.Add(1)
	}
	return err
}

// paced returns a channel that yields n values a second until ctx is done. What nobody took in time is yielded later, as requests wait in a queue.
func paced(ctx context.Context, n int) <-chan struct{} {
	due := make(chan struct{}, 100*n)
	go func() {
		defer close(due)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		began, given := time.Now(), 0
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for ; given < int(time.Since(began).Seconds()*float64(n)); given++ {
				select {
				case due <- struct{}{}:
				default: // a hundred seconds behind
				}
			}
		}
	}()
	return due
}

// The switch under load: old code writes its table, processes that move the rows are killed, rows are forwarded, and new code takes over, writer by writer.
// Each number of each key is published, for the first time in its turn.
func TestSwitchUnderLoad(t *testing.T) {
	db := pgtest.Migrated(t)
	for statement := range strings.SplitSeq(oldTables, ";\n") {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	_, err := db.ExecContext(t.Context(), "INSERT INTO counters SELECT i::text FROM generate_series(0, ?) i", adoptKeys-1)
	require.NoError(t, err)

	w := &wire{}
	startTo(t, task{Name: "relay", Database: db.DSN, Relay: true}, w.process())
	launched := 0
	launch := func() *process {
		launched++
		return startTo(t, task{Name: fmt.Sprintf("adopt-%d", launched), Database: db.DSN, Adopt: true}, &deliveries{})
	}
	movers := []*process{launch(), launch()}

	var done atomic.Int64
	store := outbox.NewStore(db.DB, &outbox.Config{Source: "endurance"})
	writing, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	db.SetMaxOpenConns(adoptWriters*adoptSessions + 2)
	writers, due := make([]*changer, adoptWriters), paced(writing, eventsPerSecond*20/19) // one in twenty is rolled back
	for i := range writers {
		c := &changer{db: db.DB, store: store, done: &done}
		writers[i] = c
		for range adoptSessions {
			group.Go(func() {
				for range due {
					_ = c.change(context.WithoutCancel(writing)) // rolled back on purpose, or counted
				}
			})
		}
	}
	began := time.Now()
	kill := func(n int) {
		for range n {
			upTo := w.count() + 2*eventsPerSecond
			await.True(t, seldom(func() bool { return w.count() > upTo }), "events are published")
			victim := rand.IntN(len(movers))
			movers[victim].kill()
			movers[victim] = launch()
		}
	}
	kill(adoptKills * 6 / 10)
	m, err := newAdopter(t.Context(), db.DB)
	require.NoError(t, err)
	if os.Getenv("ENDURANCE_WITHOUT") != "forward" {
		require.NoError(t, m.Forward(t.Context()))
	}
	for i := range writers { // as a rolling deploy
		kill(1)
		writers[i].fresh.Store(true)
	}
	upTo := w.count() + 2*eventsPerSecond
	await.True(t, seldom(func() bool { return w.count() > upTo }), "new code alone is published")
	stop()
	group.Wait()
	rate := float64(done.Load()) / time.Since(began).Seconds()
	left, err := m.Once(t.Context())
	require.NoError(t, err)
	require.Zero(t, left.Left)
	require.NoError(t, m.StopForwarding(t.Context()))
	await.True(t, seldom(func() bool {
		var waits int
		err := db.NewRaw("SELECT (SELECT count(*) FROM outbox_unsent) + (SELECT count(*) FROM outbox_held)").Scan(t.Context(), &waits)
		return err == nil && waits == 0
	}), "all is published")

	var counters []struct {
		ID string
		N  int
	}
	require.NoError(t, db.NewRaw("SELECT id, n FROM counters").Scan(t.Context(), &counters))
	sent, committed := map[string]int{}, 0
	for _, c := range counters {
		sent[c.ID] = c.N
		committed += c.N
	}
	require.EqualValues(t, done.Load(), committed)
	var stored int
	require.NoError(t, db.NewRaw("SELECT count(*) FROM outbox_messages").Scan(t.Context(), &stored))
	firsts, seen := []effect{}, map[effect]bool{}
	published := w.all()
	for _, e := range published {
		if !seen[e] {
			firsts = append(firsts, e)
		}
		seen[e] = true
	}
	v := judge(firsts, sent)
	t.Logf("switch kills=%d events=%d per_second=%.0f lost=%d disorder=%d stored_twice=%d wire_duplicates=%d", adoptKills, committed, rate, v.lost,
		v.disorder, stored-committed, len(published)-len(firsts))
	require.Equal(t, verdict{}, verdict{lost: v.lost, disorder: v.disorder, twice: stored - committed}, v.details)
}
