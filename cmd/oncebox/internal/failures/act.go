package failures

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/operator"
	causes "github.com/oncebox/oncebox/operator/failures"
)

// decision is an action on all failures of a cause, with the texts of its command.
type decision struct {
	action            operator.Action
	short, long, done string
	thing, things     string
	why               string // the error for an operator who gives no reason; "": a reason is not needed
}

var (
	retry = decision{
		action: operator.Retry, short: "Try all messages of a consumer that fail for one cause at once", done: "tried at once",
		long: "Try all messages of a consumer that fail for one cause at once: the first of each ordering key. Mend the cause first. Their attempts stay\n" +
			"counted. Events that the broker refuses are tried again by themselves.",
		thing: "failing message", things: "failing messages",
	}
	replay = decision{
		action: operator.Replay, short: "Publish or handle all dead letters of one cause once more", done: "replayed",
		long:  "Publish all dead events, or handle all dead messages, of one cause once more. Mend the cause first.",
		thing: "dead letter", things: "dead letters",
	}
	discard = decision{
		action: operator.Discard, short: "Delete all dead letters of one cause for good", done: "discarded",
		long: "Delete all dead letters of one cause for good. The messages behind them go on. --why is required: it stays in the audit.\n" +
			"Messages that are tried again are not deleted.",
		thing: "dead letter", things: "dead letters",
		why: "--why is missing: say why; a discarded dead letter cannot be brought back",
	}
)

// order is a decision, as the flags give it.
type order struct {
	*decision

	by          operator.By
	yes, dryRun bool
	rate        float64
}

// newAct makes retry, replay and discard from one frame, so they confirm, limit and report in the same way.
func newAct(s *cli.Session, d *decision) *cobra.Command {
	o := &order{decision: d}
	name := string(d.action)
	cmd := &cobra.Command{
		Use: name + " FINGERPRINT", Short: d.short, Long: d.long, Args: takesOne,
		Example: "  oncebox failures " + name + " 3f9a1c0277d4be51 --dry-run\n" +
			"  oncebox failures " + name + " 3f9a1c0277d4be51 --rate 50 --by ann --why \"the mail server is back\"",
	}
	flags := cmd.Flags()
	cli.DecisionFlags(flags, &o.by, &o.yes, cli.ButDryRun, cli.Optional)
	flags.BoolVar(&o.dryRun, "dry-run", false, "count only")
	flags.Float64Var(&o.rate, "rate", 0, "act on at most this number per second, to protect the relays and consumers (default: no limit)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := o.check(); err != nil {
			return cli.Usage(cmd, err)
		}
		g, err := find(cmd, s, args[0])
		if err != nil {
			return err
		}
		return carryOut(cmd, s, o, &g)
	}
	return cmd
}

// check reports missing and wrong flags before the command asks the database anything.
func (o *order) check() error {
	var errs []error
	if !o.dryRun {
		errs = append(errs, cli.NeedsActor(o.by.Actor))
	}
	if o.why != "" && !o.dryRun && strings.TrimSpace(o.by.Reason) == "" {
		errs = append(errs, errors.New(o.why))
	}
	if o.rate < 0 {
		errs = append(errs, errors.New("--rate is below 0"))
	}
	return errors.Join(errs...)
}

// Result is the JSON output of retry, replay and discard. Scripts use the names, so they never change.
type Result struct {
	Action      operator.Action `json:"action"`
	Fingerprint string          `json:"fingerprint"`
	DryRun      bool            `json:"dry_run"`
	Count       int64           `json:"count"`
}

// carryOut counts the failures, asks, and treats them.
func carryOut(cmd *cobra.Command, s *cli.Session, o *order, g *causes.Group) error {
	by := o.by
	if o.dryRun { // the count needs an actor and a reason, too
		by = operator.By{Actor: "dry run", Reason: "dry run"}
	}
	n, err := s.View().Failures().Act(cmd.Context(), o.action, g, by, &operator.Bulk{DryRun: true})
	if err != nil {
		return err
	}
	if n == 0 {
		return cli.Exit(cli.ExitNothing, fmt.Errorf("the cause %s has no %s; nothing was done", g.Fingerprint, o.thing))
	}
	if o.dryRun {
		return printResult(s, o, Result{o.action, g.Fingerprint, true, n}, "would be "+o.done)
	}
	if err := s.Confirm(o.yes, fmt.Sprintf("%s %s of %q?", o.action, cli.Several(n, o.thing, o.things), g.Cause)); err != nil {
		return err
	}
	p := s.Progress(o.done, n)
	n, err = s.View().Failures().Act(cmd.Context(), o.action, g, by, &operator.Bulk{Rate: o.rate, Progress: p.Show})
	p.End()
	if err != nil {
		return fmt.Errorf("%w; %s before the error: run the command again for the others",
			err, cli.Several(n, o.thing+" was "+o.done, o.things+" were "+o.done))
	}
	return printResult(s, o, Result{o.action, g.Fingerprint, false, n}, o.done)
}

func printResult(s *cli.Session, o *order, r Result, verb string) error {
	if s.JSON {
		return s.Document(r)
	}
	_, err := fmt.Fprintf(s.Out, "%s %s\n", cli.Several(r.Count, o.thing, o.things), verb)
	return err
}
