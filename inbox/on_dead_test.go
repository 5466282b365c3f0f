package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// counted is the sum of a counter as read now.
func counted(t *testing.T, r metric.Reader, name string) (sum int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.Collect(context.Background(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if data, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
				for _, p := range data.DataPoints {
					sum += p.Value
				}
			}
		}
	}
	return sum
}

// choosy is a sink that refuses events of the type "unwanted".
type choosy struct{ committed }

func (*choosy) Flush(_ context.Context, _ bun.IDB, evs []event.Envelope) error {
	for _, e := range evs {
		if e.Type == "unwanted" {
			return errors.New("the sink does not take it")
		}
	}
	return nil
}

// alarmed is a world whose dead letters are announced on the topic "alarms" and in the table of effects.
type alarmed struct {
	*world

	sink *choosy
	box  *inbox.Inbox

	mu     sync.Mutex
	failed []string // what the log says of hooks
	told   map[string]inbox.DeadLetter
}

func newAlarmed(t *testing.T, timeout time.Duration, hook func(ctx context.Context, u *uow.Unit, d inbox.DeadLetter) error) *alarmed {
	t.Helper()
	sink := &choosy{}
	a := &alarmed{world: newWorld(t, sink), sink: sink, told: map[string]inbox.DeadLetter{}}
	reader := metric.NewManualReader()
	t.Cleanup(func() { require.EqualValues(t, len(a.failed), counted(t, reader, "oncebox.inbox.unannounced")) })
	cfg := inbox.Config{
		Telemetry: telemetry.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
			Logger: quietlog.Every(slog.New(hearing(func(message string) { // the tests wait for each line
				a.mu.Lock()
				defer a.mu.Unlock()
				if strings.Contains(message, "OnDead") {
					a.failed = append(a.failed, message)
				}
			})))},
		Retry:        inbox.RetryPolicy{MaxAttempts: 4, Policy: retry.Policy{Delay: time.Millisecond, MaxDelay: 5 * time.Millisecond}},
		PollInterval: 20 * time.Millisecond, OnDeadTimeout: timeout, LockTimeout: time.Minute,
		OnDead: func(ctx context.Context, u *uow.Unit, d inbox.DeadLetter) error {
			a.mu.Lock()
			a.told[d.Envelope.ID] = d
			a.mu.Unlock()
			if err := u.Add("alarms", []byte(d.Envelope.ID), event.WithType("alarm")); err != nil {
				return err
			}
			if _, err := u.DB().NewRaw("INSERT INTO effects (what) VALUES (?)", d.Envelope.ID).Exec(ctx); err != nil {
				return err
			}
			if hook == nil {
				return nil
			}
			return hook(ctx, u, d)
		},
	}
	a.box = inbox.New(a.units, &cfg)
	return a
}

type hearing func(message string)

func (hearing) Enabled(context.Context, slog.Level) bool        { return true }
func (h hearing) Handle(_ context.Context, r slog.Record) error { h(r.Message); return nil }
func (h hearing) WithAttrs([]slog.Attr) slog.Handler            { return h }
func (h hearing) WithGroup(string) slog.Handler                 { return h }

// alarms counts what was announced and committed.
func (a *alarmed) alarms() map[string]int {
	a.t.Helper()
	rows, events := map[string]int{}, map[string]int{}
	for _, id := range a.effects() {
		rows[id]++
	}
	for _, e := range a.sink.all() {
		events[string(e.Payload)]++
	}
	require.Equal(a.t, rows, events, "the row and the event of a hook go together")
	return events
}

func dies(_ context.Context, m *messaging.Message) error {
	if strings.HasPrefix(m.ID, "stubborn") {
		return errors.New("not now")
	}
	return messaging.Permanent(errors.New("never"))
}

func TestEachDeadLetterOfAConsumerIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	var seen event.Metadata
	var tenant string
	w := newAlarmed(t, time.Minute, func(ctx context.Context, _ *uow.Unit, d inbox.DeadLetter) error {
		if d.Envelope.ID == "poison" {
			seen, tenant = event.MetadataFrom(ctx), event.TenantFrom(ctx)
		}
		return nil
	})
	h := w.box.Wrap("billing", messaging.HandlerFunc(dies))
	for _, id := range []string{"poison", "poison too"} { // the first try gives them up
		require.NoError(t, h.Handle(t.Context(), unordered(id)))
		require.NoError(t, h.Handle(t.Context(), unordered(id)), "a copy is a duplicate")
	}
	settleLater(t, h, ordered("stubborn", "o1")) // parked, and given up there
	settleLater(t, h, ordered("poison behind it", "o1"))
	defer runParked(t, w.box)()
	await.True(t, func() bool { return len(w.dead()) == 3 }, "they are dead")
	require.Equal(t, map[string]int{"poison": 1, "poison too": 1, "stubborn": 1}, w.alarms())
	require.Equal(t, "t1", tenant)
	require.Equal(t, "poison", seen[event.CausationID])
	require.NotEmpty(t, seen[event.DeadLetterOf])
	require.Empty(t, w.failed)
	w.mu.Lock()
	for _, d := range w.dead() {
		require.Equal(t, d, w.told[d.Envelope.ID])
	}
	w.mu.Unlock()

	for _, d := range w.dead() {
		if d.Envelope.ID == "poison" {
			require.NoError(t, w.box.Dead().Replay(t.Context(), d.Key, ann))
		}
	}
	await.True(t, func() bool { return len(w.effects()) == 4 }, "it has died again")
	require.Equal(t, map[string]int{"poison": 2, "poison too": 1, "stubborn": 1}, w.alarms(), "replayed, it has died again")
}

func TestHookThatFailsKeepsNoMessageAlive(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(ctx context.Context, u *uow.Unit) error{
		"error": func(context.Context, *uow.Unit) error { return errors.New("no chat today") },
		"panic": func(context.Context, *uow.Unit) error { panic("a defect of the hook") },
		"swallowed statement": func(ctx context.Context, u *uow.Unit) error {
			_, _ = u.DB().NewRaw("SELECT 1/0").Exec(ctx)
			return nil
		},
		"hang": func(ctx context.Context, _ *uow.Unit) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"hang in a statement": func(ctx context.Context, u *uow.Unit) error {
			_, err := u.DB().NewRaw("SELECT pg_sleep(600)").Exec(ctx)
			return err
		},
		"broken connection": func(ctx context.Context, u *uow.Unit) error {
			_, err := u.DB().NewRaw("SELECT pg_terminate_backend(pg_backend_pid())").Exec(ctx)
			return err
		},
		"refused at commit": func(ctx context.Context, u *uow.Unit) error {
			_, err := u.DB().NewRaw("INSERT INTO later VALUES (1), (1)").Exec(ctx)
			return err
		},
		"refused by the sink": func(_ context.Context, u *uow.Unit) error {
			return u.Add("alarms", []byte("x"), event.WithType("unwanted"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			timeout := time.Minute
			if strings.HasPrefix(name, "hang") {
				timeout = 200 * time.Millisecond
			}
			w := newAlarmed(t, timeout, func(ctx context.Context, u *uow.Unit, _ inbox.DeadLetter) error { return harm(ctx, u) })
			_, err := w.db.ExecContext(t.Context(), "CREATE TABLE later (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
			require.NoError(t, err)
			h := w.box.Wrap("billing", messaging.HandlerFunc(dies))
			require.NoError(t, h.Handle(t.Context(), unordered("poison")))
			settleLater(t, h, ordered("stubborn", "o1"))
			defer runParked(t, w.box)()
			await.True(t, func() bool { return len(w.dead()) == 2 }, "they are dead")
			await.True(t, func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return len(w.failed) == 2
			}, "the log tells")
			require.Empty(t, w.alarms())
		})
	}
}

// An announcement that dies at its consumer is not announced, nor is what its handler caused.
func TestAnnouncementThatDiesAtAConsumerIsNotAnnounced(t *testing.T) {
	t.Parallel()
	w := newAlarmed(t, time.Minute, nil)
	h := w.box.Wrap("chat", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		require.Equal(t, "01-02", event.MetadataFrom(ctx)[event.DeadLetterOf], "what it causes has the mark as well")
		return dies(ctx, m)
	}))
	m := unordered("poison")
	m.Metadata = event.Metadata{event.DeadLetterOf: "01-02"}
	require.NoError(t, h.Handle(t.Context(), m))
	require.Len(t, w.dead(), 1)
	require.Empty(t, w.alarms())
	require.Empty(t, w.failed)
}

// COMMIT fails for a reason that passes, or its connection ends. The unit is run again, with the hook.
func TestAnnouncementsOfUnitsThatAreRunAgain(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]string{
		"serialization failure": "RAISE EXCEPTION 'again' USING ERRCODE = '40001'",
		"connection lost":       "PERFORM pg_terminate_backend(pg_backend_pid())",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newAlarmed(t, time.Minute, nil)
			_, err := w.db.ExecContext(t.Context(), fmt.Sprintf(`CREATE SEQUENCE commits;
				CREATE FUNCTION harm() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF nextval('commits') %% 3 <> 0 THEN %s; END IF; RETURN NULL; END $$;
				CREATE CONSTRAINT TRIGGER harm AFTER INSERT ON inbox_dead DEFERRABLE INITIALLY DEFERRED
					FOR EACH ROW EXECUTE FUNCTION harm()`, harm))
			require.NoError(t, err)
			h := w.box.Wrap("billing", messaging.HandlerFunc(dies))
			want := map[string]int{}
			for n := range 5 {
				id := fmt.Sprint("poison", n)
				settleLater(t, h, unordered(id))
				want[id] = 1
			}
			require.Len(t, w.dead(), 5)
			require.Equal(t, want, w.alarms())
			require.GreaterOrEqual(t, column[int](t, w.db.DB, "SELECT last_value FROM commits")[0], 15)
		})
	}
}
