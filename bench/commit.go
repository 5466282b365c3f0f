package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
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
	ks, clients := ints{1, 3, 10}, ints{1, 8, 32}
	flags.Var(&ks, "k", "events per transaction")
	flags.Var(&clients, "clients", "clients at once")
	only := flags.String("only", "", "run this contender alone, for profiles: oncebox, pgx or bun")
	var files profiles
	files.flags(flags)
	var records figures
	records.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	var cells []cell
	for _, k := range ks {
		for _, clients := range clients {
			cells = append(cells, cell{k: k, clients: clients, by: map[string]*series{}})
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
	stop, err := files.start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for round := range *rounds {
		for _, cell := range cells {
			for _, c := range contenders {
				if err := cell.measure(ctx, server.URL, c, *length); err != nil {
					return fmt.Errorf("%s with k=%d and %d clients: %w", c.name, cell.k, cell.clients, err)
				}
			}
			progressf("round %d of %d: %s", round+1, *rounds, cell)
		}
	}
	if *only == "" {
		reportCommit(cells, contenders)
		for _, c := range cells {
			name := fmt.Sprintf("Commit/k=%d/clients=%d", c.k, c.clients)
			records.addSeries(name, c.by["oncebox"], c.by["pgx"].rates)
		}
		return records.write()
	}
	for _, c := range cells {
		s := c.by[*only]
		if s == nil {
			return fmt.Errorf("-only %s: there is no such contender", *only)
		}
		fmt.Printf("%s k=%d clients=%d: %s tx/s, cpu %s µs, %.0f allocs\n", *only, c.k, c.clients, s.rates.rate(), s.cpu(), s.allocs.median())
	}
	return nil
}

// contender is one way to write the transaction.
type contender struct {
	name, settings string
	// events is the table that it writes to.
	events string
	open   func(ctx context.Context, s *schema, clients int) (session, error)
}

// outboxTable is the table that oncebox writes events to.
const outboxTable = "outbox"

// session is a contender that is connected to a schema. It is safe for concurrent use.
type session interface {
	// transact moves money on the account as it is stored now, with k events.
	transact(ctx context.Context, id string, balance, version int64, k int) error
	close()
}

func contenders() []contender {
	return []contender{
		{"oncebox", "uow.Manager.Do, outbox.Store, a bun model as the aggregate", outboxTable, openOncebox},
		{"pgx", "native pgx, prepared statements, 4 round trips, one INSERT of k rows", floorName, openPgx},
		{"bun", "bun models on pgx/stdlib, simple protocol, 4 round trips, one INSERT of k rows", floorName, openBun},
	}
}

// cell is one combination of events per transaction and clients.
type cell struct {
	k, clients int
	by         map[string]*series // contender
}

func (c cell) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "k=%d clients=%d:", c.k, c.clients)
	for _, contender := range contenders() {
		if s := c.by[contender.name]; s != nil {
			fmt.Fprintf(&text, " %s %.0f", contender.name, s.latest())
		}
	}
	return text.String() + " tx/s"
}

// storeAccounts gives the accounts the version that a stored aggregate has at least.
const storeAccounts = `UPDATE account SET version = 1`

// warmUp is how long the clients run before the measurement: connections are opened and statements prepared.
const warmUp = 200 * time.Millisecond

// measure does one run in a schema of its own.
func (c cell) measure(ctx context.Context, dsn string, by contender, length time.Duration) error {
	if c.by[by.name] == nil {
		c.by[by.name] = &series{}
	}
	return withSchema(ctx, dsn, func(s *schema) error {
		if err := s.exec(ctx, fmt.Sprintf(createAccounts, aggregates-1), storeAccounts, createFloor); err != nil {
			return err
		}
		session, err := by.open(ctx, s, c.clients)
		if err != nil {
			return err
		}
		defer session.close()
		db, err := s.bun(pgx.QueryExecModeExec, 1)
		if err != nil {
			return err
		}
		defer db.Close()
		runtime.GC() // so that the run does not collect another run's garbage
		var committed int64
		err = labelled(ctx, by.name, func(ctx context.Context) (err error) {
			committed, err = c.race(ctx, session, length, newMeter(dsn), c.by[by.name])
			return err
		})
		if err != nil {
			return err
		}
		return verifyCommits(ctx, db, by.events, committed, c.k)
	})
}

// race lets all clients commit until the time is over, and returns the number of transactions, including the warm-up.
func (c cell) race(ctx context.Context, session session, length time.Duration, m meter, to *series) (committed int64, err error) {
	var count atomic.Int64
	var over atomic.Bool
	group, ctx := errgroup.WithContext(ctx)
	for client := range c.clients {
		group.Go(func() error {
			var mine []account
			for i := client; i < aggregates; i += c.clients {
				mine = append(mine, account{ID: accountID(i), Version: 1})
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
	measureWindow(ctx, length, &count, m, to)
	over.Store(true)
	err = group.Wait()
	return count.Load(), err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// countCommits checks that each account's events are numbered 2, 3, 4, ... in the order of their sequence.
const countCommits = `
SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE aggregate_version <> place + 1),
	(SELECT coalesce(sum(version - 1), 0)::bigint FROM account), (SELECT coalesce(sum(balance), 0)::bigint FROM account)
FROM (SELECT id, aggregate_version, row_number() OVER (PARTITION BY aggregate_id ORDER BY seq) AS place FROM %s) e`

// verifyCommits compares the stored rows with the number of transactions.
func verifyCommits(ctx context.Context, db *bun.DB, events string, committed int64, k int) error {
	var rows, ids, misplaced, versions, balances int64
	err := db.DB.QueryRowContext(ctx, fmt.Sprintf(countCommits, events)).Scan(&rows, &ids, &misplaced, &versions, &balances)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	want := committed * int64(k)
	if rows != want || ids != want || misplaced != 0 || versions != want || balances != committed {
		return fmt.Errorf("%w: %d transactions of %d events committed, but there are %d events with %d ids, %d of them out of order, "+
			"and the accounts count %d events and %d transactions", errWrong, committed, k, rows, ids, misplaced, versions, balances)
	}
	return nil
}

// reportCommit prints the table and the line of figures.
func reportCommit(cells []cell, contenders []contender) {
	for _, c := range contenders {
		fmt.Printf("%-8s %s\n", c.name, c.settings)
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "k\tclients\toncebox tx/s\tcpu µs\tallocs\tpgx tx/s\tcpu µs\tallocs\tbun tx/s\tcpu µs\tallocs\tratio_pgx\tratio_bun\t")
	var overPgx, overBun sample
	for _, c := range cells {
		ours, byPgx, byBun := c.by["oncebox"], c.by["pgx"], c.by["bun"]
		fmt.Fprintf(out, "%d\t%d\t", c.k, c.clients)
		for _, s := range []*series{ours, byPgx, byBun} {
			fmt.Fprintf(out, "%s\t%s\t%.0f\t", s.rates.rate(), s.cpu(), s.allocs.median())
		}
		fmt.Fprintf(out, "%s\t%s\t\n", ours.rates.over(byPgx.rates).ratio(), ours.rates.over(byBun.rates).ratio())
		overPgx = append(overPgx, ours.rates.over(byPgx.rates).median())
		overBun = append(overBun, ours.rates.over(byBun.rates).median())
	}
	out.Flush()
	fmt.Println("cpu: per transaction, of this program + PostgreSQL; allocs: objects per transaction, of this program")
	fmt.Printf("commit ratio_bun=%.2f ratio_pgx=%.2f ratio_bun_worst=%.2f ratio_pgx_worst=%.2f\n",
		overBun.median(), overPgx.median(), slices.Min(overBun), slices.Min(overPgx))
}
