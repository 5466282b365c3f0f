package dead

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// decision is an action on dead letters, with the texts of its command.
type decision struct {
	action            operator.Action
	short, long, done string
}

var (
	replay = decision{
		action: operator.Replay, short: "Publish dead events, or handle dead messages, once more", done: "replayed",
		long: "Publish dead events, or handle dead messages, once more. Give their ids, or flags that select them. Mend the cause first.\n" +
			"A dead letter keeps its id and its place in the order. The processes of the service do the work, before they go on with later events of the key.",
	}
	discard = decision{
		action: operator.Discard, short: "Delete dead letters for good", done: "discarded",
		long: "Delete dead letters for good. Give their ids, or flags that select them. The messages behind them go on.\n" +
			"--why is required: it stays in the audit.",
	}
)

// order is a decision about a selection of dead letters, as the flags give it.
type order struct {
	selection

	*decision

	by               operator.By
	all, yes, dryRun bool
	rate             float64
}

// newDeadAct makes replay and discard from one frame, so they select, confirm, limit and report in the same way.
func newDeadAct(s *cli.Session, d *decision) *cobra.Command {
	o := &order{decision: d}
	name := string(d.action)
	cmd := &cobra.Command{
		Use:   name + " [ID...]",
		Short: d.short,
		Long:  d.long,
		Example: "  oncebox dead " + name + " 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --by ann --why \"the cause is mended\"\n" +
			"  oncebox dead " + name + " --consumer billing --error \"unknown currency\" --dry-run\n" +
			"  oncebox dead " + name + " --consumer billing --rate 50 --by ann --why \"release 7\"",
	}
	o.flags(cmd)
	flags := cmd.Flags()
	cli.DecisionFlags(flags, &o.by, &o.yes, cli.ButDryRun, cli.Optional)
	flags.BoolVar(&o.all, "all", false, "all dead letters; not together with ids or flags that select")
	flags.BoolVar(&o.dryRun, "dry-run", false, "count only")
	flags.Float64Var(&o.rate, "rate", 0, "act on at most this number per second, to protect the relays and consumers (default: no limit)")
	cmd.RunE = func(cmd *cobra.Command, ids []string) error {
		if err := o.check(ids); err != nil {
			return cli.Usage(cmd, err)
		}
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		return carryOut(cmd.Context(), s, o, ids)
	}
	return cmd
}

// check reports missing and contradictory flags before the command asks the database anything.
func (o *order) check(ids []string) error {
	errs := []error{o.complete(time.Now())}
	for _, id := range ids {
		// Each id is checked alone, so that the error names the wrong one.
		one := selection{Selection: ops.Selection{ID: id}}
		errs = append(errs, one.complete(time.Now()))
	}
	if !o.dryRun {
		errs = append(errs, cli.NeedsActor(o.by.Actor))
	}
	// A dry run deletes nothing, so it needs no reason.
	if o.action == operator.Discard && !o.dryRun && strings.TrimSpace(o.by.Reason) == "" {
		errs = append(errs, errors.New("--why is missing: say why; a discarded dead letter cannot be brought back"))
	}
	if o.rate < 0 {
		errs = append(errs, errors.New("--rate is below 0"))
	}
	// Without a selection an operator has to type --all. A forgotten flag must not discard everything.
	switch selects := len(ids) > 0 || !o.IsEmpty(); {
	case !selects && !o.all:
		errs = append(errs, errors.New("nothing is selected: give ids, or flags such as --consumer, or --all"))
	case selects && o.all:
		errs = append(errs, errors.New("--all contradicts ids and flags that select: give one or the other"))
	}
	return errors.Join(errs...)
}

// parts returns the selections of the order: one for each id, or only the selection of the flags.
func (o *order) parts(ids []string) []selection {
	if len(ids) == 0 {
		return []selection{o.selection}
	}
	parts := make([]selection, len(ids))
	for n, id := range ids {
		parts[n] = o.selection
		parts[n].ID, parts[n].filter.ID = id, id
	}
	return parts
}

// Result is the JSON output of dead replay and dead discard. Scripts use the names, so they never change.
type Result struct {
	Action operator.Action `json:"action"`
	DryRun bool            `json:"dry_run"`
	Counts
}

// carryOut counts the selected letters, asks, and treats them. An id without a letter ends it before anything is
// changed, because the operator has probably mistyped it.
func carryOut(ctx context.Context, s *cli.Session, o *order, ids []string) error {
	parts := o.parts(ids)
	var selected Counts
	for n := range parts {
		c, err := count(ctx, s, &parts[n])
		if err != nil {
			return err
		}
		if c.total() == 0 && parts[n].ID != "" {
			return cli.Exit(cli.ExitNothing, fmt.Errorf("no dead letter has the id %s; nothing was done", parts[n].ID))
		}
		selected.Outbox, selected.Inbox = selected.Outbox+c.Outbox, selected.Inbox+c.Inbox
	}
	// Nothing selected is an error with its own exit code: a script that expects dead letters notices a wrong flag.
	if selected.total() == 0 {
		return cli.Exit(cli.ExitNothing, errors.New("no dead letter matches the selection; nothing was done"))
	}
	if o.dryRun {
		return printResult(s, Result{o.action, true, selected}, "would be "+o.done)
	}
	if err := s.Confirm(o.yes, fmt.Sprintf("%s %s (%s)?", o.action, cli.Several(selected.total(), "dead letter", "dead letters"), selected)); err != nil {
		return err
	}
	done, err := treat(ctx, s, o, parts, selected)
	if err != nil {
		// Letters of committed transactions are treated for good. They have left the table, so the next run
		// finds only the others.
		return fmt.Errorf("%w; %s %s before the error: run the command again for the others", err, cli.Several(done.total(), "dead letter was", "dead "+
			"letters were"), o.done)
	}
	// Only for a single id: after a mass replay the list is the better place to look.
	if err := printResult(s, Result{o.action, false, done}, o.done); err != nil || s.JSON || o.action != operator.Replay || len(ids) != 1 {
		return err
	}
	_, err = fmt.Fprintln(s.Out, "See what becomes of it: "+s.Typed("show", ids[0]))
	return err
}

// treat carries out the order, one selection and one box after the other. done counts what is committed,
// also when it fails.
func treat(ctx context.Context, s *cli.Session, o *order, parts []selection, of Counts) (done Counts, err error) {
	p := s.Progress(o.done, of.total())
	defer p.End()
	for n := range parts {
		f := &parts[n]
		for _, box := range f.Boxes() {
			before := done.total()
			// The progress of each box begins at 0, and the operator sees the sum over all of them.
			bulk := &operator.Bulk{Rate: o.rate, Progress: func(n int64) { p.Show(before + n) }}
			moved, err := s.View().Dead().ActOnAll(ctx, o.action, box, f.filter, o.by, bulk)
			done = done.plus(box, moved)
			if err != nil {
				return done, err
			}
		}
	}
	return done, nil
}

func printResult(s *cli.Session, r Result, verb string) error {
	if s.JSON {
		return s.Document(r)
	}
	_, err := fmt.Fprintf(s.Out, "%s %s (%s)\n", cli.Several(r.total(), "dead letter", "dead letters"), verb, r.Counts)
	return err
}
