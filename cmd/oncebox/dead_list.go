package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/ops"
)

func newDeadList(s *session) *cobra.Command {
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
		Args: noArgs,
	}
	f.flags(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most so many")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if limit < 1 {
			return usage(cmd, errors.New("--limit is below 1"))
		}
		if err := f.complete(time.Now()); err != nil {
			return usage(cmd, err)
		}
		if err := s.openTables(cmd.Context()); err != nil {
			return err
		}
		list, err := s.letters(cmd.Context(), &f, limit+1)
		if err != nil {
			return err
		}
		slices.SortStableFunc(list, func(a, b ops.Letter) int { return a.DiedAt.Compare(b.DiedAt) })
		more := len(list) > limit
		list = list[:min(len(list), limit)]
		if err := s.printLetters(lettersOf(list)); err != nil {
			return err
		}
		if more {
			all, err := s.count(cmd.Context(), &f)
			if err != nil {
				return err
			}
			fmt.Fprintf(s.errs, "There are more: %d of %d are shown. --limit %d shows all, and --died-from %s goes on from here.\n",
				limit, all.total(), all.total(), list[len(list)-1].DiedAt.UTC().Format(time.RFC3339))
		}
		return nil
	}
	return cmd
}

func (s *session) printLetters(list []letter) error {
	if s.json {
		return s.document(list)
	}
	if len(list) == 0 {
		fmt.Fprintln(s.errs, "There is no dead letter.")
		return nil
	}
	rows := make([][]string, len(list))
	for n, l := range list {
		rows[n] = []string{moment(l.DiedAt), l.of(), l.ID, l.Type, l.Topic, l.Tenant, short(l.Key, 40), strconv.Itoa(l.Attempts), short(l.Error, 80)}
	}
	return s.table([]string{"DIED", "OF", "ID", "TYPE", "TOPIC", "TENANT", "KEY", "TRIES", "ERROR"}, rows)
}
