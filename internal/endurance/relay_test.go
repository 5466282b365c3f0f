//go:build unix && nightly

package endurance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
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
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
)

const (
	// relayKills is how many processes die: four projectors for each server.
	relayKills = 300
	relays     = 3
	relayTopic = "relayed"
)

// relay is the life of a process with a projector. It reports each message that it publishes to the test, with one line.
func (t *task) relay(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	db, err := config.OpenDB(ctx, config.Config{DatabaseURL: t.Database, Telemetry: telemetry.Config{Logger: log}})
	if err != nil {
		return err
	}
	defer db.Close()
	p, err := projector.New(told{}, &projector.Config{
		Name: t.Name, Lease: 3 * time.Second, Renew: 300 * time.Millisecond, PublishTimeout: time.Second,
		Retry: retry.Policy{Delay: 50 * time.Millisecond, MaxDelay: 200 * time.Millisecond}, MaxRetryAttempts: -1, MaxCrashes: -1,
		Telemetry: telemetry.Config{Logger: log},
	}, outbox.NewStore(db, &outbox.Config{Source: "endurance"}))
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// told is a broker whose log is the standard output. It refuses some messages at first, and what follows them under their keys.
type told struct{}

// Publish writes the messages in order.
func (told) Publish(_ context.Context, msgs []event.Envelope) error {
	var lines strings.Builder
	failed, stuck := map[int]error{}, map[string]bool{}
	for i := range msgs {
		if stuck[msgs[i].AggregateID] || rand.IntN(300) == 0 {
			stuck[msgs[i].AggregateID] = true
			failed[i] = errMoody
			continue
		}
		fmt.Fprintf(&lines, "%s %d\n", msgs[i].AggregateID, msgs[i].AggregateVersion)
	}
	if _, err := os.Stdout.WriteString(lines.String()); err != nil {
		return err
	}
	if len(failed) > 0 {
		return &messaging.PublishError{Failed: failed}
	}
	return nil
}

// wire is what all processes have published, in the order in which it came.
type wire struct {
	mu   sync.Mutex
	rows []effect
}

// process returns a writer for the output of one process. What it had not written to the end was not published.
func (w *wire) process() *wireEnd { return &wireEnd{wire: w} }

type wireEnd struct {
	wire    *wire
	partial string
}

func (e *wireEnd) Write(p []byte) (int, error) {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	lines := strings.Split(e.partial+string(p), "\n")
	for _, line := range lines[:len(lines)-1] {
		key, number, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			return 0, err
		}
		e.wire.rows = append(e.wire.rows, effect{key, n})
	}
	e.partial = lines[len(lines)-1]
	return len(p), nil
}

func (w *wire) count() int { return len(w.all()) }

// all returns what was published so far. The writers go on behind it.
func (w *wire) all() []effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rows
}

// relayWriter commits events of keys of its own: one after the other, some late, some not at all. Of some commits it does not learn the outcome.
type relayWriter struct {
	db    *bun.DB
	store *outbox.Store
	name  string
	sure  map[effect]bool // their commit was confirmed
	next  map[string]int
	done  *atomic.Int64
}

var errNotThisTime = errors.New("rolled back on purpose")

func (w *relayWriter) write(ctx context.Context) {
	var made []effect
	err := w.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		made = made[:0]
		for range 1 + rand.IntN(3) {
			key := fmt.Sprintf("%s-%d", w.name, rand.IntN(10))
			w.next[key]++
			made = append(made, effect{key, w.next[key]})
			_, err := w.store.Add(ctx, tx, relayTopic, []byte("{}"), event.WithAggregate("thing", key, int64(w.next[key])), event.WithType("thing.changed"))
			if err != nil {
				return err
			}
			if rand.IntN(10) == 0 {
				if _, err := tx.ExecContext(ctx, "SELECT pg_sleep(random() / 10)"); err != nil {
					return err
				}
			}
		}
		if rand.IntN(10) == 0 {
			return errNotThisTime
		}
		return nil
	})
	if err == nil {
		for _, e := range made {
			w.sure[e] = true
		}
		w.done.Add(int64(len(made)))
	}
}

// Projectors and the server are killed under load, again and again. What was committed is published, of each key for the first time in the order of
// its commits, and nothing else is.
func TestProjectorsAndServerAreKilled(t *testing.T) {
	p := pgtest.Start(t, nil)
	db := p.Migrated(t)
	db.SetMaxIdleConns(-1) // none is left over from before a crash
	kept := openQuietly(t, db.DSN)
	defer func() { require.NoError(t, kept.Close()) }()
	store := outbox.NewStore(kept, &outbox.Config{Source: "endurance"})
	var done atomic.Int64
	var writers []*relayWriter
	writing, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	for n := range 4 {
		w := &relayWriter{db: kept, store: store, name: fmt.Sprintf("w%d", n), sure: map[effect]bool{}, next: map[string]int{}, done: &done}
		writers = append(writers, w)
		group.Go(func() {
			for writing.Err() == nil {
				w.write(context.WithoutCancel(writing))
			}
		})
	}

	w := &wire{}
	started := 0
	launch := func() *process {
		started++
		return startTo(t, task{Name: fmt.Sprintf("p%03d", started), Database: db.DSN, Relay: true}, w.process())
	}
	var members []*process
	for range relays {
		members = append(members, launch())
	}
	// A process that comes up while the server is away ends, and its orchestrator starts another one.
	goOn := func() {
		for i, m := range members {
			select {
			case <-m.exited:
				members[i] = launch()
			default:
			}
		}
	}
	for kill := range relayKills {
		before := w.count()
		await.True(t, seldom(func() bool { goOn(); return w.count() > before+20 }), "events are published")
		if kill%5 == 4 {
			p.Crash(t)
			continue
		}
		victim := rand.IntN(len(members))
		members[victim].kill()
		members[victim] = launch()
	}
	stop()
	group.Wait()

	var committed []struct {
		AggregateID      string
		AggregateVersion int
	}
	await.True(t, seldom(func() bool {
		goOn()
		var waits int
		err := db.NewRaw("SELECT (SELECT count(*) FROM outbox_unsent) + (SELECT count(*) FROM outbox_held)").Scan(t.Context(), &waits)
		return err == nil && waits == 0
	}), "all is published")
	// The end of a process is the end of its output: a line may still be on its way when the database says that all is published.
	for _, m := range members {
		m.kill()
	}
	require.NoError(t, db.NewRaw("SELECT aggregate_id, aggregate_version FROM outbox_messages ORDER BY aggregate_id, aggregate_version").
		Scan(t.Context(), &committed))
	there := map[effect]bool{}
	for _, c := range committed {
		there[effect{c.AggregateID, c.AggregateVersion}] = true
	}
	forgotten, lost, ghosts, disorder, twice := 0, 0, 0, 0, 0
	for _, writer := range writers {
		for e := range writer.sure {
			if !there[e] {
				forgotten++
			}
		}
	}
	seen, latest := map[effect]bool{}, map[string]int{}
	for _, e := range w.all() {
		switch {
		case !there[e]:
			ghosts++
		case seen[e]:
			twice++
		case e.N < latest[e.Key]:
			disorder++
		}
		seen[e] = true
		latest[e.Key] = max(latest[e.Key], e.N)
	}
	for e := range there {
		if !seen[e] {
			lost++
		}
	}
	t.Logf("relay kills=%d projectors=%d events=%d lost=%d disorder=%d never_committed=%d forgotten=%d duplicates=%d",
		relayKills, started, len(there), lost, disorder, ghosts, forgotten, twice)
	require.Zero(t, forgotten, "commits that were confirmed and are gone")
	require.Zero(t, lost)
	require.Zero(t, disorder)
	require.Zero(t, ghosts)
}
