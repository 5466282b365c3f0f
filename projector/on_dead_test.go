package projector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/telemetry"
)

// alarmed gives the fixture a store whose dead letters are announced on the topic "alarms", after what hook does.
func (f *fixture) alarmed(db *bun.DB, timeout time.Duration, hook func(ctx context.Context, tx bun.Tx, d outbox.DeadLetter) error) (failed func() []string) {
	f.t.Helper()
	_, err := f.db.ExecContext(f.t.Context(), "CREATE TABLE IF NOT EXISTS traces (of text CONSTRAINT only_good CHECK (of <> 'forbidden'))")
	require.NoError(f.t, err)
	var mu sync.Mutex
	var said []string
	reader := metric.NewManualReader()
	f.t.Cleanup(func() { require.EqualValues(f.t, len(said), counter(f.t, reader, "oncebox.outbox.unannounced")) })
	var store *outbox.Store
	store = outbox.NewStore(db, &outbox.Config{
		Telemetry: telemetry.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
			Logger: quietlog.Every(slog.New(mender(func(message string) { // the tests wait for each line
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(message, "OnDead") {
					said = append(said, message)
				}
			})))},
		Source: "test", OnDeadTimeout: timeout,
		OnDead: func(ctx context.Context, tx bun.Tx, d outbox.DeadLetter) error {
			if _, err := store.Add(ctx, tx, "alarms", []byte(d.ID), event.WithType("alarm")); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO traces VALUES (?)", d.ID); err != nil {
				return err
			}
			if hook == nil {
				return nil
			}
			return hook(ctx, tx, d)
		},
	})
	f.store = store
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return said
	}
}

// alarms counts what was announced and committed, by the id of the dead letter.
func (f *fixture) alarms() map[string]int {
	f.t.Helper()
	var rows []struct {
		Of   string
		Sent bool
	}
	require.NoError(f.t, f.db.NewRaw(`SELECT of, false AS sent FROM traces UNION ALL
		SELECT convert_from(payload, 'UTF8'), true FROM outbox_messages WHERE topic = 'alarms'`).Scan(f.t.Context(), &rows))
	counts := map[bool]map[string]int{false: {}, true: {}}
	for _, r := range rows {
		counts[r.Sent][r.Of]++
	}
	require.Equal(f.t, counts[false], counts[true], "the row and the event of a hook go together")
	return counts[true]
}

func (f *fixture) deadIDs() map[string]int {
	f.t.Helper()
	var ids []string
	require.NoError(f.t, f.db.NewRaw("SELECT id FROM outbox_dead").Scan(f.t.Context(), &ids))
	out := map[string]int{}
	for _, id := range ids {
		out[id] = 1
	}
	return out
}

func refusesPoison(e event.Envelope) error {
	switch {
	case strings.HasPrefix(e.Type, "poison"):
		return messaging.Permanent(errors.New("never"))
	case strings.HasPrefix(e.Type, "stubborn"):
		return errors.New("not now")
	default:
		return nil
	}
}

// Whichever way an event dies, it is announced once, with what the dead letter says and in the same transaction; again only when it was
// replayed and has died again.
func TestEachDeadLetterIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var mu sync.Mutex
	told := map[string]outbox.DeadLetter{}
	failed := f.alarmed(f.db.DB, 10*time.Minute, func(ctx context.Context, tx bun.Tx, d outbox.DeadLetter) error {
		mu.Lock()
		defer mu.Unlock()
		told[d.ID] = d
		require.Equal(t, d.TenantID, event.TenantFrom(ctx))
		require.Equal(t, event.Metadata{event.CausationID: d.ID, event.CorrelationID: "c-1", event.DeadLetterOf: d.ID}, event.MetadataFrom(ctx))
		return nil
	})
	f.pub.refuse = refusesPoison
	md := event.WithMetadata(t.Context(), event.Metadata{event.CorrelationID: "c-1"})
	add := func(key, name string, opts ...event.AddOption) {
		require.NoError(t, f.db.RunInTx(md, nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := f.store.Add(ctx, tx, "order", []byte(name), append(opts, event.WithAggregate("order", key, 1), event.WithType(name))...)
			return err
		}))
	}
	for n := range 5 {
		add("a", fmt.Sprint("poison", n)) // the first one dies at once, the others wait behind it
		add(fmt.Sprint("b", n), fmt.Sprint("poison-b", n))
		add(fmt.Sprint("c", n), fmt.Sprint("stubborn", n)) // refused and held first
		add(fmt.Sprint("d", n), "fine", event.WithTenantID(fmt.Sprint("t", n)))
	}
	cfg := quick()
	cfg.MaxRetryAttempts = 3
	f.run(f.projector(cfg))
	f.eventually("they are dead", func() bool { return len(f.deadIDs()) == 11 })
	f.eventually("the alarms are sent", func() bool { return f.pub.total() == 5+11 })
	require.Equal(t, f.deadIDs(), f.alarms())
	require.Empty(t, failed())
	mu.Lock()
	for id, d := range told {
		stored, err := f.store.Dead().Show(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, stored, d)
	}
	mu.Unlock()

	for id := range f.deadIDs() {
		require.NoError(t, f.store.Dead().Replay(t.Context(), id, operator.By{Actor: "ann"}))
		f.store.Wake()
		f.eventually("it has died again, and is announced again", func() bool { return f.alarms()[id] == 2 && f.deadIDs()[id] == 1 })
		break
	}
}

// Where the keys of a topic go on, and where an event has expired, there is a dead letter too.
func TestAbandonedAndExpiredEventsAreAnnounced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.alarmed(f.db.DB, 10*time.Minute, nil)
	f.pub.refuse = refusesPoison
	f.add("a", "poison")
	f.add("a", "after")
	f.add("b", "late", event.WithExpiry(time.Now().Add(-time.Hour)))
	cfg := quick()
	cfg.ContinueAfterDead = []string{"*"}
	f.run(f.projector(cfg))
	f.eventually("two are dead, the third and the alarms are sent", func() bool { return len(f.deadIDs()) == 2 && f.pub.total() == 3 })
	require.Equal(t, f.deadIDs(), f.alarms())
}

// An announcement that dies itself is not announced: that would never end.
func TestAnnouncementThatDiesIsNotAnnounced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	failed := f.alarmed(f.db.DB, 10*time.Minute, nil)
	f.pub.refuse = func(event.Envelope) error { return messaging.Permanent(errors.New("never")) }
	id := f.add("a", "poison")
	f.run(f.projector(quick()))
	f.eventually("both are dead", func() bool { return len(f.deadIDs()) == 2 })
	f.add("b", "poison")
	f.eventually("the next one and its announcement too", func() bool { return len(f.deadIDs()) == 4 })
	require.Len(t, f.alarms(), 2)
	require.Equal(t, 1, f.alarms()[id])
	require.Empty(t, failed())
}

// Whatever a hook does, the event is given up. Nothing of the hook's work stays, and the log says so.
func TestHookThatFailsKeepsNoEventAlive(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(ctx context.Context, tx bun.Tx) error{
		"error": func(context.Context, bun.Tx) error { return errors.New("no chat today") },
		"panic": func(context.Context, bun.Tx) error { panic("a defect of the hook") },
		"statement": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO traces VALUES ('forbidden')")
			return err
		},
		"swallowed statement": func(ctx context.Context, tx bun.Tx) error {
			_, _ = tx.ExecContext(ctx, "INSERT INTO traces VALUES ('forbidden')")
			return nil
		},
		"hang": func(ctx context.Context, _ bun.Tx) error {
			<-ctx.Done()
			return nil
		},
		"hang in a statement": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.ExecContext(ctx, "SELECT pg_sleep(600)")
			return err
		},
		"broken connection": func(ctx context.Context, tx bun.Tx) error {
			_, _ = tx.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			return nil
		},
		"rolled back": func(_ context.Context, tx bun.Tx) error { return tx.Rollback() },
		"refused at commit": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO later VALUES (1), (1)")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			_, err := f.db.ExecContext(t.Context(), "CREATE TABLE later (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			require.NoError(t, err)
			timeout := 10 * time.Minute
			if strings.HasPrefix(name, "hang") {
				timeout = 200 * time.Millisecond
			}
			failed := f.alarmed(f.db.DB, timeout, func(ctx context.Context, tx bun.Tx, d outbox.DeadLetter) error {
				if strings.HasSuffix(d.Type, "-bad") {
					return harm(ctx, tx)
				}
				return nil
			})
			f.pub.refuse = refusesPoison
			bad := []string{f.add("a", "poison-bad"), f.add("b", "stubborn-bad")}
			good := f.add("c", "poison")
			cfg := quick()
			cfg.MaxRetryAttempts = 2
			f.run(f.projector(cfg))
			f.eventually("all are dead", func() bool { return len(f.deadIDs()) == 3 })
			f.eventually("the log tells", func() bool { return len(failed()) >= 2 })
			for _, id := range bad {
				require.Zero(t, f.alarms()[id])
			}
			if name == "error" || name == "panic" || name == "statement" || name == "swallowed statement" {
				require.Equal(t, 1, f.alarms()[good], "the other hooks of the transaction are not harmed")
				require.Len(t, failed(), 2)
			}
		})
	}
}

// The connection breaks while COMMIT is on its way, or its answer is. Whatever the database made of it, there is one announcement for each
// dead letter.
func TestAnnouncementsWhileCommitsLoseTheirAnswers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	wire := f.wire()
	var mu sync.Mutex
	lost, ofRound, round, pending, dying := 0, 0, 0, false, false
	pool := f.pool(&tap{on: func(statement string, _ bool) {
		mu.Lock()
		defer mu.Unlock()
		dies := strings.Contains(statement, "INSERT INTO") && strings.Contains(statement, "outbox_dead")
		commits := statement == "commit" && dying
		dying = dies || dying && !commits
		// The write in one round, COMMIT in the next; with the statement and with its answer by turns. One in a round, so that a try is left for a
		// connection that dies late: after three the dead letter is made without its hook.
		if (dies && round%3 != 1 || commits && round%3 != 0) && !pending && ofRound < 1 {
			lost++
			ofRound++
			pending = true
			if lost%2 == 0 {
				wire.Limit(linktest.ToClient, 0)
			} else {
				wire.Limit(linktest.ToServer, 0)
			}
		}
	}}, func(u *url.URL) { u.Host = wire.Addr })
	f.alarmed(pool, 10*time.Minute, nil)
	f.pub.refuse = refusesPoison
	cfg := quick()
	cfg.Workers = 1
	cfg.Telemetry.Logger = slog.New(mender(func(message string) {
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(message, "worker 0 failed") && pending { // another loop would mend the wire between two tries
			pending = false
			wire.Mend()
		}
	}))
	plain := outbox.NewStore(f.db.DB, &outbox.Config{Source: "test"})
	p := f.relay(f.pub, cfg, f.store)
	f.run(p)
	n := nightly.N(10, 100)
	for i := range n {
		mu.Lock()
		round, ofRound = i, 0
		mu.Unlock()
		alarmed := f.store
		f.store = plain
		f.add(fmt.Sprint("a", i), "poison")
		f.add(fmt.Sprint("b", i), "poison")
		f.store = alarmed
		f.eventually("they are dead", func() bool { return len(f.deadIDs()) == 2*i+2 })
	}
	mu.Lock()
	require.GreaterOrEqual(t, lost, n)
	mu.Unlock()
	require.Equal(t, f.deadIDs(), f.alarms())
}
