package kills

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"
)

// Trial is one run of the service under kills.
type Trial struct {
	// Name is the name of the broker.
	Name string
	// Database is the URL of the database, and DB is a pool to it. Its schema is empty. Required.
	Database string
	DB       *bun.DB
	// Env has variables of the service's processes, in addition to those of this process. Default: none.
	Env []string
	// Orders is how many orders are placed. Rounds is how often api, a projector and a consumer are killed each. Required.
	Orders, Rounds int
	// Wire reads what was published. Required.
	Wire Wire
	// Crash kills the broker and starts it again, in every second round. Default: nil, it is left alone.
	Crash func(context.Context) error
}

// Report is what came of a trial.
type Report struct {
	// Orders, Events and Keys count what there was; Killed, by the part of the process, and BrokerKills what was killed.
	Orders, Events, Keys, BrokerKills int
	Killed                            map[string]int
	// Owners are the places that were seen owning lanes, Takeovers how many lanes of killed processes went to others.
	Owners    map[string]bool
	Takeovers int
	// Refused is how many requests met no process, Duplicates how many messages were on the wire twice.
	Refused, Duplicates int

	broker    string
	judgement *judgement
	tally     tally
	took      time.Duration
}

// Run starts the processes and kills them. The error of a trial that could not be carried out has the last lines of their logs.
func (t *Trial) Run(ctx context.Context) (report *Report, err error) {
	began := time.Now()
	f, err := OpenFleet(t.Database, append(t.Env,
		// Less than half of the usual, so that takeovers take less of the trial's time.
		"ONCEBOX_OUTBOX_LEASE=4s", "ONCEBOX_OUTBOX_RENEW=500ms", "ONCEBOX_OUTBOX_PUBLISH_TIMEOUT=2s"))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, f.Logs())
		}
		err = errors.Join(err, f.Close())
	}()
	if err := f.StartAll(ctx); err != nil {
		return nil, err
	}
	c := newClient(f.APIAddr)
	defer c.http.CloseIdleConnections()
	l := newLoad(c, t.Orders)
	k := &kills{fleet: f, load: l, db: t.DB, owners: map[string]bool{}, rounds: t.Rounds, orders: t.Orders, crash: t.Crash}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return l.run(groupCtx) })
	group.Go(func() error { return k.run(groupCtx) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := t.awaitDrained(ctx); err != nil {
		return nil, err
	}
	e := &evidence{plans: l.plans, results: c.results}
	if err := errors.Join(e.readDatabase(ctx, t.DB), e.readSummaries(ctx, c)); err != nil {
		return nil, err
	}
	messages, err := t.Wire.Read(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the wire: %w", err)
	}
	if e.wire, err = factsOf(messages, began); err != nil {
		return nil, err
	}
	if err := f.StopAll(ctx); err != nil {
		return nil, fmt.Errorf("SIGTERM ends a process cleanly: %w", err)
	}
	v := e.judge()
	return &Report{
		Orders: len(e.orders), Events: len(e.sent), Keys: len(c.results), BrokerKills: k.crashes, Killed: f.killed,
		Owners: k.owners, Takeovers: k.takeovers, Refused: c.tally.refused, Duplicates: v.duplicates,
		broker: t.Name, judgement: v, tally: c.tally, took: time.Since(began),
	}, nil
}

// String is the report in one line. lost, twice, disorder, ghosts (what was never committed), answers_differ and wrong must be 0. The others show that the
// trial was hard: answers_replayed are those beyond the two that each request causes, because each is sent three times.
func (r *Report) String() string {
	v := r.judgement
	killed := 0
	for _, n := range r.Killed {
		killed += n
	}
	return fmt.Sprintf("orders broker=%s orders=%d events=%d keys=%d posts=%d kills=%d kills_broker=%d lanes_taken_over=%d lost=%d twice=%d disorder=%d "+
		"ghosts=%d answers_differ=%d wrong=%d wire_duplicates=%d answers_replayed=%d connection_errors=%d conflicts=%d unavailable=%d total=%s",
		r.broker, r.Orders, r.Events, r.Keys, r.tally.posts, killed, r.BrokerKills, r.Takeovers, v.lost, v.twice, v.disorder,
		v.ghosts, v.differing, v.wrong, v.duplicates, r.tally.replayed-2*r.Keys, r.tally.refused, r.tally.inFlight, r.tally.unavailable,
		r.took.Round(time.Second))
}

// Err is nil if everything happened exactly once and in order.
func (r *Report) Err() error {
	if r.judgement.clean() {
		return nil
	}
	return errors.New(strings.Join(r.judgement.details, "\n"))
}
