package command

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/ops"
	"github.com/oncebox/oncebox/outbox"
)

// retentionResult is the JSON output of retention run. Scripts use the names, so they never change. Retentions are in
// seconds; -1: for ever, 0: not kept.
type retentionResult struct {
	DryRun           bool    `json:"dry_run"`
	PublishedSeconds float64 `json:"published_seconds"`
	HandledSeconds   float64 `json:"handled_seconds"`
	KeysRemoved      int64   `json:"keys_removed"`
}

// newRetention makes a group with one command, so that "oncebox retention" alone shows the help and removes nothing.
func newRetention(s *cli.Session) *cobra.Command {
	var yes, dryRun bool
	run := &cobra.Command{
		Use: "run", Short: "Delete now everything whose retention has ended", Args: cli.NoArgs,
		Long: `Delete now everything whose retention has ended: days of published events, inbox entries of handled messages, old audit entries, expired
idempotency keys, dead letters if they have a retention. Partitions of the next days are created. The processes of the service do this every hour; the command
is for a disk that is full, or a service that does not run.

Run it with the variables of the service: they set the retentions. --dry-run shows them.`,
		Example: `  oncebox retention run --dry-run
  oncebox retention run --yes`,
	}
	run.Flags().BoolVar(&yes, "yes", false, "do not ask")
	run.Flags().BoolVar(&dryRun, "dry-run", false, "only show the retentions, and delete nothing")
	run.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if err := s.OpenTables(ctx); err != nil {
			return err
		}
		store, box := s.Outbox(), s.Inbox()
		published, err := store.Upkeep().KeptFor(ctx)
		if err != nil {
			return err
		}
		result := retentionResult{DryRun: dryRun, PublishedSeconds: keptSeconds(published), HandledSeconds: keptSeconds(box.Retention())}
		terms := fmt.Sprintf("published events are %s, what consumers have handled is %s, dead letters of the outbox are %s, dead letters of consumers are %s",
			ops.Kept(published), ops.Kept(box.Retention()), keptDead(s.Cfg.Outbox.DeadRetention), keptDead(s.Cfg.Inbox.DeadRetention))
		if dryRun {
			return printRetention(s, result, "Nothing was removed: "+terms+".")
		}
		if err := s.Confirm(yes, terms+": remove what is older?"); err != nil {
			return err
		}
		// All three run even if one of them fails, because a full disk needs all the space that can be freed.
		result.KeysRemoved, err = s.Keys().Purge(ctx, s.DB)
		if err := errors.Join(store.Clean(ctx), box.Clean(ctx), err); err != nil {
			return fmt.Errorf("%w; what was deleted before the error stays deleted: run the command again", err)
		}
		return printRetention(s, result, fmt.Sprintf("What is older was removed: %s. %d idempotency keys had expired.", terms, result.KeysRemoved))
	}
	return cli.Group("retention", "How long things are kept", run)
}

func printRetention(s *cli.Session, r retentionResult, text string) error {
	if s.JSON {
		return s.Document(r)
	}
	_, err := fmt.Fprintln(s.Out, text)
	return err
}

// keptDead returns in words how long dead letters are kept: for ever, unless a retention is set.
func keptDead(d time.Duration) string { return ops.Kept(cmp.Or(d, outbox.KeepForever)) }

// keptSeconds returns a retention as a number for programs: -1 for ever, 0 not kept.
func keptSeconds(d time.Duration) float64 {
	switch {
	case d == outbox.NoRetention:
		return 0
	case d < 0:
		return -1
	default:
		return d.Seconds()
	}
}
