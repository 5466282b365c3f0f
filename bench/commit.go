package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/internal/devenv"
)

// commit measures the business transaction
//
//	BEGIN; UPDATE an aggregate under its optimistic lock; k events into the outbox; COMMIT
//
// The clients own different aggregates, so that no lock is fought over and round trips and CPU decide.
func commit(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("commit", flag.ContinueOnError)
	rounds := flags.Int("rounds", 3, "how often each cell is measured")
	length := flags.Duration("time", 1200*time.Millisecond, "how long each run takes")
	only := flags.String("only", "", "run this contender alone, for profiles: oncebox, pgx or bun")
	cpuprofile := flags.String("cpuprofile", "", "write a CPU profile to this file")
	if err := parse(flags, args); err != nil {
		return err
	}
	cells := []cell{}
	for _, k := range []int{1, 3, 10} {
		for _, clients := range []int{1, 8, 32} {
			cells = append(cells, cell{k: k, clients: clients, rates: map[string]sample{}})
		}
	}
	contenders := contenders()
	if *only != "" {
		contenders = slices.DeleteFunc(contenders, func(c contender) bool { return c.name != *only })
	}

	server, err := devenv.Postgres(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	stop, err := profile(*cpuprofile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for round := range *rounds {
		for _, cell := range cells {
			for _, c := range contenders {
				rate, err := cell.measure(ctx, server.URL, c, *length)
				if err != nil {
					return fmt.Errorf("%s with k=%d and %d clients: %w", c.name, cell.k, cell.clients, err)
				}
				cell.rates[c.name] = append(cell.rates[c.name], rate)
			}
			progress("round %d of %d: %s", round+1, *rounds, cell)
		}
	}
	if *only == "" {
		reportCommit(cells, contenders)
	}
	return nil
}

// contender is one way to do the transaction.
type contender struct {
	name, settings string
	// events is the table that it writes to.
	events string
	open   func(ctx context.Context, s *schema, clients int) (session, error)
}

// session is a contender that is connected to a schema. It is safe for concurrent use.
type session interface {
	// transact moves money on the account as it is stored now, with k events.
	transact(ctx context.Context, id string, balance, version int64, k int) error
	close()
}

func contenders() []contender {
	return []contender{
		{"oncebox", "uow.Manager.Do, outbox.Store, a bun model as the aggregate", "outbox", openOncebox},
		{"pgx", "native pgx, prepared statements, 4 round trips, one INSERT of k rows", "floor", openPgx},
		{"bun", "bun models on pgx/stdlib, simple protocol, 4 round trips, one INSERT of k rows", "floor", openBun},
	}
}

// cell is one combination of events per transaction and clients.
type cell struct {
	k, clients int
	rates      map[string]sample // by contender, one figure per round
}

func (c cell) String() string {
	text := fmt.Sprintf("k=%d clients=%d:", c.k, c.clients)
	for _, contender := range contenders() {
		if s := c.rates[contender.name]; len(s) > 0 {
			text += fmt.Sprintf(" %s %.0f", contender.name, s[len(s)-1])
		}
	}
	return text + " tx/s"
}

// warmUp is how long the clients run before the clock does: connections are opened and statements prepared.
const warmUp = 200 * time.Millisecond

// measure does one run in a schema of its own. It returns transactions per second.
func (c cell) measure(ctx context.Context, dsn string, by contender, length time.Duration) (rate float64, err error) {
	err = withSchema(ctx, dsn, func(s *schema) error {
		if err := s.exec(ctx, fmt.Sprintf(createAccounts, aggregates-1), createFloor); err != nil {
			return err
		}
		session, err := by.open(ctx, s, c.clients)
		if err != nil {
			return err
		}
		defer session.close()
		runtime.GC() // no run pays for the garbage of another
		var committed int64
		err = labelled(ctx, by.name, func(ctx context.Context) (err error) {
			rate, committed, err = c.race(ctx, session, length)
			return err
		})
		if err != nil {
			return err
		}
		return s.verifyCommits(ctx, by.events, committed, c.k)
	})
	return rate, err
}

// race has all clients commit until the time is over.
func (c cell) race(ctx context.Context, session session, length time.Duration) (rate float64, committed int64, err error) {
	var count atomic.Int64
	var over atomic.Bool
	group, ctx := errgroup.WithContext(ctx)
	for client := range c.clients {
		group.Go(func() error {
			var mine []account
			for i := client; i < aggregates; i += c.clients {
				mine = append(mine, account{ID: accountID(i)})
			}
			for turn := 0; !over.Load(); turn++ {
				a := &mine[turn%len(mine)]
				if err := session.transact(ctx, a.ID, a.Balance, a.Version, c.k); err != nil {
					return err
				}
				a.Balance++
				a.Version += int64(c.k)
				count.Add(1)
			}
			return nil
		})
	}
	pause(ctx, warmUp)
	before, start := count.Load(), time.Now()
	pause(ctx, length)
	after, took := count.Load(), time.Since(start)
	over.Store(true)
	err = group.Wait()
	return float64(after-before) / took.Seconds(), count.Load(), err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// countCommits: each account's events have to be numbered 1, 2, 3, ... in the order of their sequence.
const countCommits = `
SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE aggregate_version <> place),
	(SELECT coalesce(sum(version), 0)::bigint FROM account), (SELECT coalesce(sum(balance), 0)::bigint FROM account)
FROM (SELECT id, aggregate_version, row_number() OVER (PARTITION BY aggregate_id ORDER BY seq) AS place FROM %s) e`

// verifyCommits counts what the transactions left behind.
func (s *schema) verifyCommits(ctx context.Context, events string, committed int64, k int) error {
	db, err := s.bun(pgx.QueryExecModeExec, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	var rows, ids, misplaced, versions, balances int64
	err = db.DB.QueryRowContext(ctx, fmt.Sprintf(countCommits, events)).Scan(&rows, &ids, &misplaced, &versions, &balances)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	want := committed * int64(k)
	if rows != want || ids != want || misplaced != 0 || versions != want || balances != committed {
		return fmt.Errorf("WRONG RESULT: %d transactions of %d events committed, but there are %d events with %d ids, %d of them out of order, "+
			"and the accounts count %d events and %d transactions", committed, k, rows, ids, misplaced, versions, balances)
	}
	return nil
}

// reportCommit prints the table and the line of figures.
func reportCommit(cells []cell, contenders []contender) {
	for _, c := range contenders {
		fmt.Printf("%-8s %s\n", c.name, c.settings)
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "k\tclients\toncebox tx/s\tpgx tx/s\tbun tx/s\tratio_pgx\tratio_bun\t")
	var overPgx, overBun sample
	for _, c := range cells {
		ours, byPgx, byBun := c.rates["oncebox"], c.rates["pgx"], c.rates["bun"]
		fmt.Fprintf(out, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t\n", c.k, c.clients, ours.rate(), byPgx.rate(), byBun.rate(),
			ours.over(byPgx).ratio(), ours.over(byBun).ratio())
		overPgx = append(overPgx, ours.over(byPgx).median())
		overBun = append(overBun, ours.over(byBun).median())
	}
	out.Flush()
	fmt.Printf("commit ratio_bun=%.2f ratio_pgx=%.2f ratio_bun_worst=%.2f ratio_pgx_worst=%.2f\n",
		overBun.median(), overPgx.median(), slices.Min(overBun), slices.Min(overPgx))
}
