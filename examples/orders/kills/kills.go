package kills

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/serve"
)

// heldBacklog is how many messages pile up behind handlers that are held, before their process is killed: some hundred
// milliseconds of the load.
const heldBacklog = 30

// kills ends processes under load and watches the lanes change hands.
type kills struct {
	fleet *Fleet
	load  *load
	db    *bun.DB

	rounds int                         // how often each role is killed; even rounds differ from odd ones
	orders int                         // of the whole load
	crash  func(context.Context) error // kills the broker and starts it again; nil: it is left alone

	crashes   int             // how often the broker was killed
	takeovers int             // lanes that went from a killed owner to another one because their lease ran out
	owners    map[string]bool // places that were seen owning lanes
}

// run is one round after the other. The load goes on all the time; it has to wait only when it is a whole round ahead.
func (k *kills) run(ctx context.Context) error {
	each := k.orders / k.rounds
	for round := range k.rounds {
		if err := k.round(ctx, round, each); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	return nil
}

// round kills one process of each part. Tables are held before the round's load begins: processes that have to write to them come to
// the lock for certain, and are killed there. Both projectors have lanes by then, because a projector that waits at the lock hands no lane to a
// projector that has just started.
func (k *kills) round(ctx context.Context, round, each int) error {
	for name, part := range places() {
		if part != serve.Relay {
			continue
		}
		if err := k.awaitOwning(ctx, name); err != nil {
			return err
		}
	}
	tables := []string{"outbox_progress", "customer_summary"}
	if round%2 == 1 {
		tables[1] = "orders"
	}
	held := holds{}
	defer held.releaseAll()
	for _, table := range tables {
		if err := held.hold(ctx, k.db, table); err != nil {
			return err
		}
	}
	begin := round * each
	k.load.open(begin + each)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return k.api(ctx, round, begin+each/8, held) })
	group.Go(func() error { return k.projector(ctx, round, begin+each/4, held) })
	group.Go(func() error { return k.consumer(ctx, round, begin+each/2, held) })
	if k.crash != nil && round%2 == 1 {
		group.Go(func() error { return k.broker(ctx, begin+each*3/4) })
	}
	return group.Wait()
}

// broker is killed after so many plans, while relays publish and consumers receive.
func (k *kills) broker(ctx context.Context, plans int) error {
	if err := k.load.awaitDone(ctx, plans); err != nil {
		return err
	}
	k.crashes++
	return k.crash(ctx)
}

// api is killed in even rounds after so many plans, at any moment, so that some answers are lost after their COMMIT, and in odd
// ones while requests are in the middle of their transactions.
func (k *kills) api(ctx context.Context, round, plans int, held holds) error {
	const name = "api"
	var err error
	if round%2 == 0 {
		err = k.load.awaitDone(ctx, plans)
	} else {
		err = k.awaitHeld(ctx, name, "orders")
	}
	if err != nil {
		return err
	}
	_, err = k.fleet.kill(name)
	held.release("orders")
	if err != nil {
		return err
	}
	return k.fleet.Start(ctx, name)
}

// consumer kills one of the two, in odd rounds after so many plans, and in even ones while handlers are at work and messages pile up
// behind them: long enough that an acknowledgement that was given before its handler had ended would have left the client.
func (k *kills) consumer(ctx context.Context, round, plans int, held holds) error {
	name := fmt.Sprintf("consumer-%d", round/2%2)
	var err error
	if round%2 == 1 {
		err = k.load.awaitDone(ctx, plans)
	} else if name, err = k.awaitHeldConsumer(ctx, name); err == nil {
		err = k.awaitBacklog(ctx)
	}
	if err != nil {
		return err
	}
	_, err = k.fleet.kill(name)
	held.release("customer_summary")
	if err != nil {
		return err
	}
	return k.fleet.Start(ctx, name)
}

// holds are transactions by the tables that they hold.
type holds map[string]bun.Tx

// hold stops all writers of the table until it is released.
func (h holds) hold(ctx context.Context, db *bun.DB, table string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	h[table] = tx
	_, err = tx.ExecContext(ctx, "LOCK TABLE ? IN SHARE MODE", bun.Ident(table))
	return err
}

// release does nothing for a table that is not held.
func (h holds) release(table string) {
	if tx, held := h[table]; held {
		_ = tx.Rollback()
	}
}

func (h holds) releaseAll() {
	for table := range h {
		h.release(table)
	}
}

// awaitHeld waits until the process of a place is stopped by the lock.
func (k *kills) awaitHeld(ctx context.Context, name, table string) error {
	return eventually(ctx, name+" to be held at "+table, func(ctx context.Context) error {
		held, err := k.isHeld(ctx, name, table)
		if err == nil && !held {
			err = errors.New("it is not")
		}
		return err
	})
}

func (k *kills) isHeld(ctx context.Context, name, table string) (held bool, err error) {
	err = k.db.NewRaw(`SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE NOT l.granted AND l.relation = to_regclass(?) AND a.application_name = ?`, table, name).Scan(ctx, &held)
	return held, err
}

// awaitHeldConsumer waits until a consumer is stopped by the lock, and returns its name: the preferred one if both are. With some brokers one of the
// two only stands by.
func (k *kills) awaitHeldConsumer(ctx context.Context, preferred string) (name string, err error) {
	err = eventually(ctx, "a consumer to be held", func(ctx context.Context) error {
		for _, name = range []string{preferred, "consumer-0", "consumer-1"} {
			if held, err := k.isHeld(ctx, name, "customer_summary"); err != nil || held {
				return err
			}
		}
		return errors.New("none is")
	})
	return name, err
}

func (k *kills) awaitBacklog(ctx context.Context) error {
	return eventually(ctx, "messages to pile up", func(ctx context.Context) error {
		n, err := backlog(ctx, k.db)
		if err == nil && n < heldBacklog {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
}

// projector kills one of the two after so many plans, when it has published rows and not settled them, and waits until others own its
// lanes. In odd rounds it is back before that and takes its share, in even ones the survivor has to take all.
func (k *kills) projector(ctx context.Context, round, plans int, held holds) error {
	name := fmt.Sprintf("projector-%d", round%2)
	if err := k.load.awaitDone(ctx, plans); err != nil {
		return err
	}
	if err := k.awaitHeld(ctx, name, "outbox_progress"); err != nil {
		return err
	}
	dead, err := k.fleet.kill(name)
	held.release("outbox_progress")
	if err != nil {
		return err
	}
	// It is dead: it can neither hand lanes back nor claim others. The next owner of such a lane waited for its lease.
	orphans, err := k.lanes(ctx, dead)
	if err != nil {
		return err
	}
	if len(orphans) == 0 {
		return fmt.Errorf("%s was killed and owned no lane", name)
	}
	if round%2 == 1 {
		if err := k.fleet.Start(ctx, name); err != nil {
			return err
		}
	}
	if err := k.awaitTakeover(ctx, dead, orphans); err != nil {
		return err
	}
	k.takeovers += len(orphans)
	if round%2 == 0 {
		if err := k.fleet.Start(ctx, name); err != nil {
			return err
		}
	}
	return k.awaitOwning(ctx, name)
}

func (k *kills) awaitOwning(ctx context.Context, name string) error {
	err := eventually(ctx, name+" to own lanes", func(ctx context.Context) error {
		lanes, err := k.lanes(ctx, k.fleet.at(name))
		if err == nil && len(lanes) == 0 {
			err = errors.New("it owns none")
		}
		return err
	})
	if err == nil {
		k.owners[name] = true
	}
	return err
}

// awaitTakeover waits until every lane has an owner again, and is certain that it was taken from the dead one.
func (k *kills) awaitTakeover(ctx context.Context, dead *process, orphans map[int16]int64) error {
	return eventually(ctx, "the lanes of "+dead.name+" to be taken over", func(ctx context.Context) error {
		var now []struct {
			Lane  int16
			Epoch int64
			Dead  bool
		}
		err := k.db.NewRaw(`SELECT lane, epoch, owner LIKE ? AS dead FROM outbox_lane WHERE lane IN (?) AND owner IS NOT NULL`,
			dead.owner(), bun.List(slices.Collect(maps.Keys(orphans)))).Scan(ctx, &now)
		if err != nil {
			return err
		}
		taken := 0
		for _, l := range now {
			if !l.Dead && l.Epoch > orphans[l.Lane] {
				taken++
			}
		}
		if taken < len(orphans) {
			return fmt.Errorf("%d of %d", taken, len(orphans))
		}
		return nil
	})
}

// lanes returns the lanes that a process owns, with their epochs.
func (k *kills) lanes(ctx context.Context, p *process) (map[int16]int64, error) {
	var rows []struct {
		Lane  int16
		Epoch int64
	}
	err := k.db.NewRaw(`SELECT lane, epoch FROM outbox_lane WHERE owner LIKE ?`, p.owner()).Scan(ctx, &rows)
	lanes := map[int16]int64{}
	for _, l := range rows {
		lanes[l.Lane] = l.Epoch
	}
	return lanes, err
}
