package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgplan"
	"github.com/oncebox/oncebox/outbox"
)

// growing matches tables of events that no statement of a batch may read completely.
var growing = regexp.MustCompile(`^outbox(_held|_sent.*)?$`)

// checkPlans does once what a relay does with each batch, without publishing anything. It then checks the generic plans
// of all these statements over the full tables: prepared statements get these plans in the end.
func (s *site) checkPlans(ctx context.Context) error {
	heard := &eavesdropper{}
	tapped := *s.schema
	tapped.tracer = heard
	db, err := tapped.bun(pgx.QueryExecModeExec, 1)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := visitTables(ctx, lanedb.Of(outbox.NewStore(db, &outbox.Config{Schema: s.schema.name}).Handle())); err != nil {
		return fmt.Errorf("plans: %w", err)
	}
	var wrong error
	for _, statement := range heard.statements {
		plan, err := pgplan.Generic(ctx, s.db.DB, statement)
		if err != nil {
			return err
		}
		for _, fault := range plan.Unbounded(growing) {
			wrong = errors.Join(wrong, fmt.Errorf("%w: %s with %d rows waiting and %d sent:\n%s\n%s",
				errWrong, fault, s.waiting, s.sent, statement, plan.Text))
		}
	}
	s.plans = len(heard.statements)
	return wrong
}

// visitTables makes the calls of a relay, for 16 lanes.
func visitTables(ctx context.Context, store lanedb.Lanes) error {
	const me, lanes = "plans", 16
	if _, err := store.Leases.Heartbeat(ctx, me, 0, time.Minute); err != nil {
		return err
	}
	leases, err := store.Leases.Claim(ctx, me, 0, lanes, time.Minute)
	if err != nil {
		return err
	}
	var numbers []int16
	for _, l := range leases {
		numbers = append(numbers, l.Lane)
	}
	_, renew := store.Leases.Renew(ctx, leases, time.Minute)
	_, blocks := store.Held.Blocks(ctx, numbers)
	_, _, due := store.Held.Due(ctx, numbers, 0)
	_, next := store.Held.NextDue(ctx, numbers, time.Time{})
	_, settle := store.Moves.Settle(ctx, leases, []outboxdb.RowID{{Lane: numbers[0], Seq: 0}}) // nobody's
	errs := []error{renew, blocks, due, next, settle}
	for _, quota := range []int32{32, 128, lanedb.MaxFetch} { // each has a statement of its own
		var cursors []lanedb.Cursor
		for _, l := range leases {
			cursors = append(cursors, lanedb.Cursor{Lease: l, Quota: quota})
		}
		_, fetch := store.Log.Fetch(ctx, cursors, 0)
		errs = append(errs, fetch)
	}
	return errors.Join(append(errs, store.Leases.Release(ctx, leases), store.Leases.Unregister(ctx, me))...)
}

// eavesdropper keeps each statement of a pool once.
type eavesdropper struct {
	mu         sync.Mutex
	statements []string
	seen       map[string]bool
}

// TraceQueryStart is called by pgx.
func (e *eavesdropper) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.seen[data.SQL] {
		if e.seen == nil {
			e.seen = map[string]bool{}
		}
		e.seen[data.SQL] = true
		e.statements = append(e.statements, data.SQL)
	}
	return ctx
}

// TraceQueryEnd is called by pgx.
func (*eavesdropper) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
