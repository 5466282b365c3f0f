package command

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/outbox/upkeep"
)

// reconcileResult is the JSON output of reconcile. Scripts use the names, so they never change.
type reconcileResult struct {
	DryRun     bool  `json:"dry_run"`
	Repaired   int64 `json:"repaired"`
	Lanes      int64 `json:"lanes"`
	Leases     int64 `json:"leases"`
	Partitions int64 `json:"partitions"`
}

// newReconcile makes a command that ends with code 3 even if it has repaired everything, so that a script that runs it
// every day notices the damage.
func newReconcile(s *cli.Session) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "reconcile", Short: "Repair damage that would keep events of the outbox from being published", Args: cli.NoArgs,
		Long: `Repair damage that would keep events of the outbox from being published: lanes that are missing after rows were changed by hand or a backup was
restored in part, leases that end far ahead because the clock was wrong, and partitions of today and tomorrow that are missing. Relays do so every
hour. It may run at any time, deletes no event, and changes nothing in tables that nobody has touched. With --dry-run it says what it would repair.
Events and ordering keys that were changed by hand are found by oncebox doctor.

Exit code 0: nothing was wrong. 3: something was, and is repaired unless it is a dry run.`,
		Example: "  oncebox reconcile --dry-run\n  oncebox reconcile",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.OpenTables(cmd.Context()); err != nil {
				return err
			}
			if dryRun {
				found, err := s.Outbox().Upkeep().ReconcileDryRun(cmd.Context())
				if err != nil {
					return err
				}
				return printReconciled(s, found, true)
			}
			found, err := s.Outbox().Upkeep().Reconcile(cmd.Context())
			if err != nil {
				return fmt.Errorf("%w; %s repaired before the error: run the command again", err, cli.Several(found.Total(), "thing was", "things were"))
			}
			return printReconciled(s, found, false)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only report what is wrong, and repair nothing")
	return cmd
}

// printReconciled returns an error if anything was wrong, because only an error sets the exit code.
func printReconciled(s *cli.Session, r upkeep.Reconciled, dryRun bool) error {
	if s.JSON {
		err := s.Document(reconcileResult{dryRun, r.Total(), r.Lanes, r.Leases, r.Partitions})
		if err != nil {
			return err
		}
	}
	if r.Total() > 0 {
		if !s.JSON {
			if err := s.Pairs(
				"lanes that no relay could take", some(r.Lanes),
				"leases and heartbeats that ended too far ahead", some(r.Leases), "days without a partition", some(r.Partitions)); err != nil {
				return err
			}
		}
		if dryRun {
			return cli.Exit(cli.ExitFindings, fmt.Errorf("%s wrong; nothing was repaired", cli.Several(r.Total(), "thing is", "things are")))
		}
		return cli.Exit(cli.ExitFindings, fmt.Errorf("%s wrong, and repaired now", cli.Several(r.Total(), "thing was", "things were")))
	}
	if s.JSON {
		return nil
	}
	_, err := fmt.Fprintln(s.Out, "Nothing was wrong.")
	return err
}

// some formats a number, "" for 0: Pairs leaves empty values out.
func some(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
