package upkeep

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/outboxdb"
)

// Reconciled counts what [Upkeep.Reconcile] found and repaired. All of it is 0 unless rows were changed by hand, a backup was restored in part, or
// the clock of the server was wrong.
type Reconciled struct {
	// Lanes is the number of lanes that were missing in outbox_lane, so that no relay could take them.
	Lanes int64
	// Leases is the number of leases and heartbeats that ended far in the future: no relay would have taken
	// over from their owners.
	Leases int64
	// Partitions is the number of days, of today and tomorrow, without a partition.
	Partitions int64
}

// Total is the sum of all kinds.
func (r Reconciled) Total() int64 { return r.Lanes + r.Leases + r.Partitions }

type kind struct {
	name string
	n    int64
}

func (r Reconciled) kinds() []kind {
	return []kind{{"lanes", r.Lanes}, {"leases", r.Leases}, {"partitions", r.Partitions}}
}

// shortLease is the new length of a lease or heartbeat that ends far in the future, unless its owner uses
// longer leases.
const shortLease = time.Minute

// Reconcile finds and repairs the faults that [Reconciled] counts. Otherwise rows would never be published, or would be
// dropped slowly. It returns the numbers, also beside an error; a warning and the metric oncebox.outbox.reconciled
// report them as well. Relays call it every hour. It may run at any time, beside them and beside itself.
//
// It reads no backlog, and judges no row: [Upkeep.Disorder] finds rows and blocks of keys that were changed by hand.
func (u *Upkeep) Reconcile(ctx context.Context) (Reconciled, error) {
	repaired := u.repaired()
	found, err := (&reconciler{up: u}).all(ctx)
	if found.Total() > 0 {
		u.report(ctx, repaired, found)
		u.box.Wake(outboxdb.AllLanes)
	}
	return found, outboxdb.Wrap("reconcile", err)
}

// ReconcileDryRun returns the numbers that [Upkeep.Reconcile] would return. It makes each repair and rolls it back.
func (u *Upkeep) ReconcileDryRun(ctx context.Context) (Reconciled, error) {
	found, err := (&reconciler{up: u, dry: true}).all(ctx)
	return found, outboxdb.Wrap("reconcile, dry run", err)
}

// repaired returns the counter of repairs, with a series for each kind.
func (u *Upkeep) repaired() metric.Int64Counter {
	kinds := map[string][]metric.AddOption{}
	for _, k := range (Reconciled{}).kinds() {
		kinds[k.name] = []metric.AddOption{metric.WithAttributes(attribute.String("kind", k.name))}
	}
	return otelx.Started(otelx.Meter(u.cfg.MeterProvider, "outbox"), "oncebox.outbox.reconciled",
		"Lanes, leases and partitions that were repaired because their events would not have been published", kinds)
}

// report logs what was repaired as a warning: such a fault does not arise by itself, so somebody should
// look for its cause.
func (u *Upkeep) report(ctx context.Context, counter metric.Int64Counter, found Reconciled) {
	var attrs []any
	for _, k := range found.kinds() {
		if k.n > 0 {
			attrs = append(attrs, slog.Int64(k.name, k.n))
			counter.Add(ctx, k.n, metric.WithAttributes(attribute.String("kind", k.name)))
		}
	}
	u.box.Log.WarnContext(ctx, "oncebox: damage in the outbox was repaired: rows had been changed by hand, or the clock was wrong", attrs...)
}

// reconciler is one run of [Upkeep.Reconcile].
type reconciler struct {
	up  *Upkeep
	dry bool // its changes are rolled back
}

// all goes on after an error, because the three kinds are independent of each other.
func (r *reconciler) all(ctx context.Context) (found Reconciled, err error) {
	err = errors.Join(r.lanes(ctx, &found), r.leases(ctx, &found), r.partitions(ctx, &found))
	return found, err
}

// errDryRun rolls a transaction back.
var errDryRun = errors.New("outbox: dry run")

// change runs fn in a transaction.
func (r *reconciler) change(ctx context.Context, fn func(ctx context.Context, tx bun.Tx) error) error {
	err := r.up.box.DB.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		if err := fn(ctx, tx); err != nil || !r.dry {
			return err
		}
		return errDryRun
	})
	if errors.Is(err, errDryRun) {
		return nil
	}
	return err
}

// exec runs one statement that changes rows, and returns how many.
func (r *reconciler) exec(ctx context.Context, statement string, args ...any) (n int64, err error) {
	err = r.change(ctx, func(ctx context.Context, tx bun.Tx) (err error) {
		n, err = r.up.box.AdHoc().Exec(ctx, tx, statement, args...)
		return err
	})
	return n, err
}

// leases shortens leases and heartbeats that a wrong clock has made too long. A relay does so as well, at
// each of its heartbeats.
func (r *reconciler) leases(ctx context.Context, found *Reconciled) error {
	for _, statement := range []string{outboxdb.CutLanes, outboxdb.CutHeartbeats} {
		n, err := r.exec(ctx, statement, shortLease)
		if err != nil {
			return err
		}
		found.Leases += n
	}
	return nil
}

// partitions makes the days of today and tomorrow. Without a partition rows go to the DEFAULT child, where
// they are slower to drop.
func (r *reconciler) partitions(ctx context.Context, found *Reconciled) error {
	for _, day := range []int{0, 1} {
		var made bool
		err := r.change(ctx, func(ctx context.Context, tx bun.Tx) error {
			return r.up.box.Run.QueryRow(ctx, tx, makePartitions, []any{day}, &made)
		})
		if err != nil {
			return err
		}
		if made {
			found.Partitions++
		}
	}
	return nil
}
