package projector_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/state"
	"github.com/oncebox/oncebox/projector"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// recorder is a publisher that keeps the events that it confirmed. Of each key it confirms a prefix, as the
// contract says.
type recorder struct {
	mu     sync.Mutex
	refuse func(e event.Envelope) error
	unfit  func(e event.Envelope) error // what the adapter sees without the broker, whatever became of earlier ones of the key
	taken  []event.Envelope
}

func (r *recorder) Publish(_ context.Context, msgs []event.Envelope) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed := map[int]error{}
	behind := map[string]bool{}
	for i, m := range msgs {
		if r.unfit != nil {
			if failed[i] = r.unfit(m); failed[i] != nil {
				behind[m.RoutingKey] = true
				continue
			}
			delete(failed, i)
		}
		if m.RoutingKey != "" && behind[m.RoutingKey] {
			failed[i] = messaging.ErrBehind
			continue
		}
		if r.refuse != nil {
			if err := r.refuse(m); err != nil {
				failed[i] = err
				behind[m.RoutingKey] = true
				continue
			}
		}
		r.taken = append(r.taken, m)
	}
	if len(failed) > 0 {
		return &messaging.PublishError{Failed: failed}
	}
	return nil
}

func (r *recorder) refuseWith(fn func(e event.Envelope) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = fn
}

// events returns what was taken so far, while more may come.
func (r *recorder) events() []event.Envelope {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.taken)
}

func (r *recorder) types() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, m := range r.taken {
		out = append(out, m.Type)
	}
	return out
}

func (r *recorder) total() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.taken)
}

type fixture struct {
	t     *testing.T
	db    *pgtest.DB
	store *outbox.Store
	pub   *recorder
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	db := pgtest.Migrated(t, pgtest.Outbox)
	return &fixture{
		t: t, db: db, store: outbox.NewStore(db.DB, &outbox.Config{Source: "test"}), pub: &recorder{},
	}
}

func (f *fixture) projector(cfg projector.Config) *projector.Projector {
	f.t.Helper()
	return f.relay(f.pub, cfg, f.store)
}

// relay makes a projector with short pauses after failures, whose log is shown if the test fails.
func (f *fixture) relay(pub messaging.Publisher, cfg projector.Config, stores ...*outbox.Store) *projector.Projector {
	f.t.Helper()
	if cfg.Telemetry.Logger == nil {
		cfg.Telemetry.Logger = slog.New(slog.NewTextHandler(f.t.Output(), nil))
	}
	cfg.Telemetry.Logger = quietlog.Every(cfg.Telemetry.Logger) // tests wait for lines
	p, err := projector.New(pub, &cfg, stores...)
	require.NoError(f.t, err)
	projector.Hasten(p)
	return p
}

func (f *fixture) add(key, name string, opts ...event.AddOption) string {
	f.t.Helper()
	opts = append([]event.AddOption{event.WithAggregate("order", key, 1), event.WithType(name)}, opts...)
	id, err := pgtest.Add(f.t.Context(), f.db.DB, f.store, "order", []byte(name), opts...)
	require.NoError(f.t, err)
	return id
}

func (f *fixture) statuses() map[string]string {
	f.t.Helper()
	var records []state.Record
	require.NoError(f.t, f.db.NewSelect().Model(&records).Scan(f.t.Context()))
	out := map[string]string{}
	for _, r := range records {
		out[r.EventType] = r.Status
	}
	return out
}

// run starts the projector and stops it at the end of the test.
func (f *fixture) run(p *projector.Projector) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(f.t, <-done)
		})
	}
	f.t.Cleanup(stop)
	f.t.Cleanup(f.sayRows)
	return stop
}

// sayRows logs the rows of a test that failed, by status and reason: an event that became a dead letter is otherwise a wait in vain.
func (f *fixture) sayRows() {
	if !f.t.Failed() {
		return
	}
	var rows []struct {
		Status, Reason string
		Count          int
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // the context of the test is done, and its database may be silent
	defer cancel()
	err := f.db.NewRaw(`SELECT status, coalesce(error_message, '') AS reason, count(*) FROM outbox_messages GROUP BY 1, 2`).
		Scan(ctx, &rows)
	f.t.Logf("the rows of the outbox: %+v %v", rows, err)
}

func (f *fixture) eventually(what string, ok func() bool) {
	f.t.Helper()
	await.True(f.t, ok, "%s", what)
}

// changeLanes changes all lanes. It locks them in their order, as the product does: otherwise two such
// transactions could end in a deadlock.
func (f *fixture) changeLanes(set string) error {
	_, err := f.db.Exec(`WITH o AS MATERIALIZED (SELECT lane FROM outbox_lane ORDER BY lane FOR UPDATE)
		UPDATE outbox_lane l SET ` + set + ` FROM o WHERE l.lane = o.lane`)
	return err
}

// patient is for machines that stand still for a while: no lane is lost by that.
func patient() projector.Config {
	return projector.Config{Lease: 15 * time.Minute, PublishTimeout: 4 * time.Minute}
}

func quick() projector.Config {
	cfg := patient()
	cfg.Retry.Delay, cfg.Retry.MaxDelay = time.Millisecond, time.Millisecond
	cfg.SleepBusy, cfg.SleepIdle = 5*time.Millisecond, 20*time.Millisecond
	return cfg
}
