package outboxdb

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Handle is shared by all parts of an outbox. It has the database, the runner of its statements, the layout that all
// writers agree on, and the notifications that wake relays.
type Handle struct {
	Settings

	DB  *bun.DB
	Run *pgsql.Runner
	Log *slog.Logger
	// Forgets says that published rows are deleted, as of the last look at the retention of the database.
	Forgets atomic.Bool
	// Turn grows with each bounded fetch. It decides which lane gets its bytes first.
	Turn atomic.Uint64

	// ProbeAfter is the silence after which a connection that listens is probed, ProbeTimeout the limit of the probe.
	ProbeAfter, ProbeTimeout time.Duration

	layout   atomic.Pointer[Layout]
	id       string // the name of this store among the stores that notify each other
	notifier notifier

	mu     sync.Mutex
	wakers []*func(LaneSet)
}

// Settings has the fields of outbox.Config that other packages than outbox need too, under the same names.
type Settings struct {
	Schema           string
	Pooler, PollOnly bool
	NoHistory        bool
	Deployment       string
	DefaultTenantID  string
	MaxPayload       int
	OnDead           func(ctx context.Context, tx bun.Tx, d DeadLetter) error
	OnDeadTimeout    time.Duration
	// Unannounced counts the dead letters for which OnDead failed.
	Unannounced metric.Int64Counter
}

// New returns the handle of an outbox.
func New(db *bun.DB, log *slog.Logger, settings *Settings) *Handle {
	h := &Handle{
		Settings: *settings, DB: db, Run: pgsql.New(settings.Schema, settings.Pooler, lists()...), Log: log,
		id: uuid.NewString(), ProbeAfter: listenProbe, ProbeTimeout: listenTimeout,
	}
	h.notifier = notifier{log: log, send: func(ctx context.Context, lanes LaneSet) error {
		return h.Notify(ctx, h.id+" "+lanes.String())
	}}
	return h
}

// AdHoc runs what operators ask for: planned anew each time, because the best index depends on which tenant or topic it
// is, and because tables that are nearly empty most of the time are full just then.
func (h *Handle) AdHoc() *pgsql.Runner { return h.Run.AdHoc() }

// Keeps reports whether published rows are kept at all. Until the retention of the database is known they are: another process may need them.
func (h *Handle) Keeps() bool { return !h.Forgets.Load() }

// SwitchOff switches settings of the planner off for the rest of a transaction.
const SwitchOff = `SELECT set_config(name, 'off', true) FROM unnest($1::text[]) name`

// Without runs statements in a transaction in which settings of the planner are off.
func (h *Handle) Without(ctx context.Context, settings []string, fn func(context.Context, bun.Tx) error) error {
	return h.DB.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := h.AdHoc().Exec(ctx, tx, SwitchOff, settings); err != nil {
			return err
		}
		return fn(ctx, tx)
	})
}

// AskDeployment asks for the deployment that the database belongs to.
const AskDeployment = `SELECT coalesce(deployment, '') FROM {schema}.oncebox_settings`

// Owner returns the deployment that the database belongs to. "": any.
func (h *Handle) Owner(ctx context.Context) (name string, err error) {
	err = h.Run.QueryRow(ctx, h.DB, AskDeployment, nil, &name)
	return name, err
}

// HeadOfKey finds the first held row of key k, or of a later key if k has none. It compares rows, because only one index
// fits such a comparison, also when the planner takes the table for empty. With equality, 50,000 replays took three times
// as long.
const HeadOfKey = `
		SELECT x.lane, x.ordering_key, x.seq, x.retry_after FROM {schema}.outbox_held x
		WHERE (x.lane, x.ordering_key, x.seq) >= (k.lane, k.ordering_key, 0) ORDER BY x.lane, x.ordering_key, x.seq LIMIT 1`

// HoldsKey is true if the key of a dead letter d waits for it. It is a look-up for each letter: for an EXISTS the planner would read all blocks.
const HoldsKey = `coalesce((SELECT b.state = 'dead' AND b.head_seq = d.seq FROM {schema}.outbox_block b
		WHERE b.lane = d.lane AND b.ordering_key = d.ordering_key), false)`

// Wrap adds the call that failed to an error, and what to do about it where that is known. It returns nil for nil.
func Wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("outbox: %s: %w", what, pgerr.Explain(err))
}
