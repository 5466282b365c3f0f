package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/outbox"
)

// reconcileResult is what reconcile prints as JSON. The names stay.
type reconcileResult struct {
	DryRun     bool  `json:"dry_run"`
	Repaired   int64 `json:"repaired"`
	Lanes      int64 `json:"lanes"`
	Leases     int64 `json:"leases"`
	Partitions int64 `json:"partitions"`
}

func newReconcile(s *session) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "reconcile", Short: "Repair what would keep events of the outbox from ever being published", Args: noArgs,
		Long: `Repair what would keep events of the outbox from ever being published: lanes that are missing after rows were changed by hand or a backup was
restored in part, leases that end far ahead because the clock was wrong, and partitions of today and tomorrow that are missing. Relays do so every
hour. It may run at any time, deletes no event, and changes nothing in tables that nobody has touched. With --dry-run it says what it would repair.
Events and ordering keys that were changed by hand are found by oncebox doctor.

Exit code 0: nothing was wrong. 3: something was, and is repaired unless it is a dry run.`,
		Example: "  oncebox reconcile --dry-run\n  oncebox reconcile",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.openTables(cmd.Context()); err != nil {
				return err
			}
			if dryRun {
				found, err := s.outbox().ReconcileDryRun(cmd.Context())
				if err != nil {
					return err
				}
				return s.printReconciled(found, true)
			}
			found, err := s.outbox().Reconcile(cmd.Context())
			if err != nil {
				return fmt.Errorf("%w; %s repaired before: call it again", err, several(found.Total(), "thing was", "things were"))
			}
			return s.printReconciled(found, false)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what is wrong, and repair nothing")
	return cmd
}

func (s *session) printReconciled(r outbox.Reconciled, dryRun bool) error {
	if s.json {
		err := s.document(reconcileResult{dryRun, r.Total(), r.Lanes, r.Leases, r.Partitions})
		if err != nil {
			return err
		}
	}
	if r.Total() > 0 {
		if !s.json {
			if err := s.pairs(
				"lanes that no relay could take", some(r.Lanes),
				"leases and heartbeats that ended too far ahead", some(r.Leases), "days without a partition", some(r.Partitions)); err != nil {
				return err
			}
		}
		if dryRun {
			return &exitError{exitFindings, fmt.Errorf("%s wrong; nothing was repaired", several(r.Total(), "thing is", "things are"))}
		}
		return &exitError{exitFindings, fmt.Errorf("%s wrong, and repaired now", several(r.Total(), "thing was", "things were"))}
	}
	if s.json {
		return nil
	}
	_, err := fmt.Fprintln(s.out, "Nothing was wrong.")
	return err
}

// some is a number, "" for none.
func some(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}
