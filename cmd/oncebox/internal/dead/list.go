package dead

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/ops"
)

func newDeadList(s *cli.Session) *cobra.Command {
	var (
		f     selection
		limit int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, the oldest first, without their payloads",
		Example: `  oncebox dead list
  oncebox dead list --consumer billing --type order.placed
  oncebox dead list --outbox --died-from 24h --json`,
		Args: cli.NoArgs,
	}
	f.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most this number")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.OpenList(cmd, limit, f.complete(time.Now())); err != nil {
			return err
		}
		// One letter more than asked for, from each box, shows whether there are more. It also makes the merge right if
		// all letters are of one box.
		list, err := letters(cmd.Context(), s, &f, limit+1)
		if err != nil {
			return err
		}
		// Each box is sorted already. Sorting both together gives one order by time, and the limit then
		// cuts the latest.
		slices.SortStableFunc(list, func(a, b ops.Letter) int { return a.DiedAt.Compare(b.DiedAt) })
		more := len(list) > limit
		list = list[:min(len(list), limit)]
		if err := printLetters(s, lettersOf(list)); err != nil {
			return err
		}
		// Counting reads all letters that match, so it runs only if the list is not complete.
		if more {
			all, err := count(cmd.Context(), s, &f)
			if err != nil {
				return err
			}
			fmt.Fprintf(s.Errs, "There are more: %d of %d are shown. --limit %d shows all, and --died-from %s goes on from here.\n",
				limit, all.total(), all.total(), list[len(list)-1].DiedAt.UTC().Format(time.RFC3339))
		}
		return nil
	}
	return cmd
}

func printLetters(s *cli.Session, list []Letter) error {
	header := []string{"DIED", "OF", "ID", "TYPE", "TOPIC", "TENANT", "KEY", "TRIES", "ERROR"}
	return cli.List(s, list, "There is no dead letter.", header, func(l *Letter) []string {
		return []string{
			cli.Moment(l.DiedAt), l.of(), l.ID, l.Type, l.Topic, l.Tenant, cli.Short(l.Key, 40), strconv.Itoa(l.Attempts), cli.Short(l.Error, 80),
		}
	})
}
