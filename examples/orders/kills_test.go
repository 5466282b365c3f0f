//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"
)

// killRounds is how often each role is killed.
const killRounds = 5

// heldBacklog is how many messages pile up behind handlers that are held, before their process is killed: some hundred
// milliseconds of the load.
const heldBacklog = 30

// kills ends processes under load and watches the lanes change hands.
type kills struct {
	fleet   *fleet
	load    *load
	db      *bun.DB
	backlog func(context.Context) (int, error) // of the subscription

	takeovers int             // lanes that went from a killed owner to another one because their lease ran out
	owners    map[string]bool // places that were seen owning lanes

	midRequest, midPublish, midHandler int // kills that are known to have hit somebody at work
}

// run is one round after the other. The load goes on all the time; it has to wait only when it is a whole round ahead.
func (k *kills) run(ctx context.Context) error {
	each := planOrders / killRounds
	for round := range killRounds {
		begin := round * each
		k.load.open(begin + each)
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return k.after(ctx, begin+each/8, round, k.api) })
		group.Go(func() error { return k.after(ctx, begin+each/4, round, k.projector) })
		group.Go(func() error { return k.after(ctx, begin+each/2, round, k.consumer) })
		if err := group.Wait(); err != nil {
			return fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	return nil
}

func (k *kills) after(ctx context.Context, plans, round int, kill func(ctx context.Context, round int) error) error {
	if err := k.load.awaitDone(ctx, plans); err != nil {
		return err
	}
	return kill(ctx, round)
}

// api is killed at any moment in even rounds, so that some answers are lost after their COMMIT, and in odd ones while
// requests are in the middle of their transactions.
func (k *kills) api(ctx context.Context, round int) error {
	const name = "api"
	release := func() {}
	if round%2 == 1 {
		var err error
		if release, err = k.hold(ctx, "orders"); err != nil {
			return err
		}
		if k.awaitHeld(ctx, name, "orders") {
			k.midRequest++
		}
	}
	_, err := k.fleet.kill(name)
	release()
	if err != nil {
		return err
	}
	return k.fleet.start(ctx, name)
}

// consumer kills one of the two, in even rounds while handlers are at work and messages pile up behind them: long enough
// that an acknowledgement that was given before its handler had ended would have left the client.
func (k *kills) consumer(ctx context.Context, round int) error {
	name := fmt.Sprintf("consumer-%d", round/2%2)
	release := func() {}
	if round%2 == 0 {
		var err error
		if release, err = k.hold(ctx, "customer_summary"); err != nil {
			return err
		}
		if k.awaitHeld(ctx, name, "customer_summary") && k.awaitBacklog(ctx) {
			k.midHandler++
		}
	}
	_, err := k.fleet.kill(name)
	release()
	if err != nil {
		return err
	}
	return k.fleet.start(ctx, name)
}

// hold stops everybody who writes to the table until it is released.
func (k *kills) hold(ctx context.Context, table string) (release func(), err error) {
	tx, err := k.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	release = func() { _ = tx.Rollback() }
	if _, err := tx.ExecContext(ctx, "LOCK TABLE ? IN SHARE MODE", bun.Ident(table)); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// awaitHeld waits until the process of a place is stopped by the lock. false: it had nothing to do, and the kill is one
// at any moment.
func (k *kills) awaitHeld(ctx context.Context, name, table string) bool {
	return nil == await(ctx, name+" to be held", 5*time.Second, func(ctx context.Context) error {
		var n int
		err := k.db.NewRaw(`SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE NOT l.granted AND l.relation = to_regclass(?) AND a.application_name = ?`, table, name).Scan(ctx, &n)
		if err == nil && n == 0 {
			err = errors.New("it is not")
		}
		return err
	})
}

func (k *kills) awaitBacklog(ctx context.Context) bool {
	return nil == await(ctx, "messages to pile up", 5*time.Second, func(ctx context.Context) error {
		n, err := k.backlog(ctx)
		if err == nil && n < heldBacklog {
			err = fmt.Errorf("%d", n)
		}
		return err
	})
}

// projector kills one of the two while it has rows on their way, and waits until others own its lanes. In odd rounds it
// is back before that and takes its share, in even ones the survivor has to take all.
func (k *kills) projector(ctx context.Context, round int) error {
	name := fmt.Sprintf("projector-%d", round%2)
	if err := k.awaitOwning(ctx, name); err != nil {
		return err
	}
	if k.awaitPublishing(ctx, k.fleet.at(name)) {
		k.midPublish++
	}
	dead, err := k.fleet.kill(name)
	if err != nil {
		return err
	}
	// It is dead: it can neither hand lanes back nor claim others. Whoever has one of these next waited for its lease.
	orphans, err := k.lanes(ctx, dead)
	if err != nil {
		return err
	}
	if len(orphans) == 0 {
		return fmt.Errorf("%s was killed and owned no lane", name)
	}
	if round%2 == 1 {
		if err := k.fleet.start(ctx, name); err != nil {
			return err
		}
	}
	if err := k.awaitTakeover(ctx, dead, orphans); err != nil {
		return err
	}
	k.takeovers += len(orphans)
	if round%2 == 0 {
		if err := k.fleet.start(ctx, name); err != nil {
			return err
		}
	}
	return k.awaitOwning(ctx, name)
}

func (k *kills) awaitOwning(ctx context.Context, name string) error {
	err := await(ctx, name+" to own lanes", time.Minute, func(ctx context.Context) error {
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

// awaitPublishing waits until rows in the process's lanes are on their way. false: the moment was missed again and
// again, because the relay is faster than the look.
func (k *kills) awaitPublishing(ctx context.Context, p *process) bool {
	return nil == await(ctx, "rows on their way", 3*time.Second, func(ctx context.Context) error {
		var n int
		err := k.db.NewRaw(`SELECT count(*) FROM outbox o JOIN outbox_lane l USING (lane) WHERE l.owner LIKE ? AND o.seq <= l.claimed_seq`,
			p.owner()).Scan(ctx, &n)
		if err == nil && n == 0 {
			err = errors.New("there are none")
		}
		return err
	})
}

// awaitTakeover waits until every lane has an owner again, and is certain that it was taken from the dead one.
func (k *kills) awaitTakeover(ctx context.Context, dead *process, orphans map[int16]int64) error {
	return await(ctx, "the lanes of "+dead.name+" to be taken over", time.Minute, func(ctx context.Context) error {
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
