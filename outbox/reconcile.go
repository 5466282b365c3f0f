package outbox

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Reconciled is what [Store.Reconcile] found and repaired. Nothing that this module does leads there, so all of it is 0
// unless rows were changed by hand, restored in part, or the server's clock was wrong.
type Reconciled struct {
	// Lanes that were not in outbox_lane, so that nobody could claim them.
	Lanes int64
	// Leases and heartbeats that ended more than a day ahead: nobody would have taken over from their owners.
	Leases int64
	// Partitions of today and tomorrow that were missing.
	Partitions int64
	// Blocks of keys that were missing although rows of the key are held, or that stood for a row that is not there.
	Blocks int64
	// Stuck are held rows that nothing would ever have made due.
	Stuck int64
	// Early are held rows that were due before their turn: they are passed over each time, and in the way of others.
	Early int64
}

// Total is the sum of all kinds.
func (r Reconciled) Total() int64 {
	var n int64
	for _, k := range r.kinds() {
		n += k.n
	}
	return n
}

type kind struct {
	name string
	n    int64
}

func (r Reconciled) kinds() []kind {
	return []kind{
		{"lanes", r.Lanes}, {"leases", r.Leases}, {"partitions", r.Partitions},
		{"blocks", r.Blocks}, {"stuck", r.Stuck}, {"early", r.Early},
	}
}

// Reconcile looks for what [Reconciled] lists, and repairs it: rows would never be published. It returns
// what it repaired, also beside an error; a warning and the metric oncebox.outbox.reconciled tell as well. Projectors call it
// every hour. It may run at any time, beside them and beside itself.
//
// It does not judge what it finds in the lanes: not whether a row lies in the lane of its key. Nor does it restore the block of a dead letter behind which
// nothing is held: the events of that key go on.
//
// It only looks, without locks, until it finds something. Then it does what an operator's deed does: it locks the lane,
// looks again, repairs, and the owner of the lane loads its blocks anew. The order of a key is kept: a row comes due only
// as the first one of its key, and a lost block comes back as that of a dead letter if there is one in front.
//
// A backlog costs nothing, and neither does what waits behind a refused row: of the waiting rows it reads none, of the held
// ones the first of each key and the unordered ones. That is about 0.1 s per thousand blocked keys.
func (s *Store) Reconcile(ctx context.Context) (Reconciled, error) {
	repaired := s.repaired()
	found, err := (&reconciler{Store: s}).all(ctx)
	if found.Total() > 0 {
		s.report(ctx, repaired, found)
		s.Wake()
	}
	return found, wrap("reconcile", err)
}

// ReconcileDryRun returns what [Store.Reconcile] would repair, and changes nothing: each repair is made and rolled back. A lane in which
// something is wrong is locked for that moment. Of held rows that are due before their turn it counts the first 1000 of each lane.
func (s *Store) ReconcileDryRun(ctx context.Context) (Reconciled, error) {
	found, err := (&reconciler{Store: s, dry: true}).all(ctx)
	return found, wrap("reconcile, dry run", err)
}

// reconciler is one run of [Store.Reconcile].
type reconciler struct {
	*Store

	dry bool // what it does is rolled back
}

func (s *reconciler) all(ctx context.Context) (found Reconciled, err error) {
	err = errors.Join(
		s.reconcileLanes(ctx, &found),
		s.reconcilePartitions(ctx, &found),
		s.reconcileHeld(ctx, &found))
	return found, err
}

// errDryRun rolls a transaction back.
var errDryRun = errors.New("outbox: dry run")

// change runs fn in a transaction.
func (s *reconciler) change(ctx context.Context, fn func(ctx context.Context, tx bun.Tx) error) error {
	err := s.db.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
		if err := fn(ctx, tx); err != nil || !s.dry {
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
func (s *reconciler) exec(ctx context.Context, statement string, args ...any) (n int64, err error) {
	err = s.change(ctx, func(ctx context.Context, tx bun.Tx) (err error) {
		n, err = s.adHoc().Exec(ctx, tx, statement, args...)
		return err
	})
	return n, err
}

// repaired returns the counter, with a series for each kind.
func (s *Store) repaired() metric.Int64Counter {
	kinds := map[string][]metric.AddOption{}
	for _, k := range (Reconciled{}).kinds() {
		kinds[k.name] = []metric.AddOption{metric.WithAttributes(attribute.String("kind", k.name))}
	}
	return otelx.Started(otelx.Meter(s.cfg.MeterProvider, "outbox"), "oncebox.outbox.reconciled",
		"Things that were repaired because no projector would have published what depends on them", kinds)
}

func (s *Store) report(ctx context.Context, counter metric.Int64Counter, found Reconciled) {
	var attrs []any
	for _, k := range found.kinds() {
		if k.n > 0 {
			attrs = append(attrs, slog.Int64(k.name, k.n))
			counter.Add(ctx, k.n, metric.WithAttributes(attribute.String("kind", k.name)))
		}
	}
	s.log.WarnContext(ctx, "oncebox: the outbox was repaired: something had been changed by hand, or the clock was wrong", attrs...)
}

func (s *reconciler) reconcilePartitions(ctx context.Context, found *Reconciled) error {
	for _, day := range []int{0, 1} {
		var made bool
		err := s.change(ctx, func(ctx context.Context, tx bun.Tx) error {
			return s.sql.QueryRow(ctx, tx, makePartitions, []any{day}, &made)
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

func (s *reconciler) reconcileHeld(ctx context.Context, found *Reconciled) error {
	lanes, err := scanLanes(s.adHoc().Query(ctx, s.db, lanesWithHeld))
	if err != nil {
		return err
	}
	for lane := range lanes {
		for _, reconcile := range []func(context.Context, int16, *Reconciled) error{
			s.reconcileKeys, s.reconcileUnordered, s.reconcileDue,
		} {
			if err := reconcile(ctx, lane, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// reconcileKeys looks at every key of a lane that has a block or held rows.
func (s *reconciler) reconcileKeys(ctx context.Context, lane int16, found *Reconciled) error {
	after := ""
	for more := true; more; {
		var wrong []string
		last, err := suspicious(ctx, s.Store, &wrong, lookAtKeys, lane, after)
		if err != nil {
			return err
		}
		if err := s.repair(ctx, lane, wrong, len(wrong), keyRepairs(found)); err != nil {
			return err
		}
		after, more = last, last != ""
	}
	return nil
}

// keyRepairs are the repairs of keys, in the order in which one makes room for the next.
func keyRepairs(found *Reconciled) []repair {
	return []repair{
		{addBlocks, &found.Blocks}, {freeBlocks, &found.Blocks}, {liftBlocks, &found.Blocks}, {liftDrained, new(int64)},
		{calmHeads, &found.Early}, {wakeKeys, &found.Stuck},
	}
}

// reconcileUnordered looks at the unordered held rows of a lane.
func (s *reconciler) reconcileUnordered(ctx context.Context, lane int16, found *Reconciled) error {
	after := int64(0)
	for more := true; more; {
		var wrong []int64
		last, err := suspicious(ctx, s.Store, &wrong, lookAtUnordered, lane, after)
		if err != nil {
			return err
		}
		if err := s.repair(ctx, lane, wrong, len(wrong), []repair{{wakeUnordered, &found.Stuck}}); err != nil {
			return err
		}
		after, more = last, last != 0
	}
	return nil
}

// reconcileDue looks at the rows of a lane that are due first. [Relay.Due] reads from the same end, so what is in the way
// of others is among them.
func (s *reconciler) reconcileDue(ctx context.Context, lane int16, found *Reconciled) error {
	for {
		var wrong []int64
		if _, err := suspicious(ctx, s.Store, &wrong, lookAtDue, lane); err != nil {
			return err
		}
		before := found.Early
		if err := s.repair(ctx, lane, wrong, len(wrong), []repair{{calmRows, &found.Early}}); err != nil || found.Early == before || s.dry {
			return err
		}
	}
}

// suspicious runs a statement that looks at a thousand things of a lane. It appends those that seem wrong to wrong, and
// returns the last of them, the zero value if there are no more.
func suspicious[T any](ctx context.Context, s *Store, wrong *[]T, look string, args ...any) (last T, err error) {
	err = pgsql.Each(s.adHoc().Query(ctx, s.db, look, args...), func(scan pgsql.Scan) error {
		var id T
		var isWrong, isLast bool
		if err := scan(&id, &isWrong, &isLast); err != nil {
			return err
		}
		if isWrong {
			*wrong = append(*wrong, id)
		}
		if isLast {
			last = id
		}
		return nil
	})
	return last, err
}

// repair is a statement that repairs what it finds wrong among the given keys or rows of a lane, and where to count it.
type repair struct {
	statement string
	count     *int64
}

// repair runs the repairs in one transaction that holds the lane. Each of them looks again: what seemed wrong may be gone.
func (s *reconciler) repair(ctx context.Context, lane int16, ids any, n int, repairs []repair) error {
	if n == 0 {
		return nil
	}
	counts := make([]int64, len(repairs))
	err := s.change(ctx, func(ctx context.Context, tx bun.Tx) error {
		if _, err := s.adHoc().Exec(ctx, tx, touchLanes, []int16{lane}); err != nil {
			return err
		}
		for i, r := range repairs {
			var err error
			if counts[i], err = s.adHoc().Exec(ctx, tx, r.statement, lane, ids); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, r := range repairs {
		*r.count += counts[i]
	}
	return nil
}
