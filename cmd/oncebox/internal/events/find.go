package events

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/internal/seek"
	"github.com/oncebox/oncebox/ops"
)

// FoundItem is an event that was found, in the JSON output of find. Scripts use the names, so they never change.
type FoundItem struct {
	At            *time.Time `json:"at,omitempty"`
	ID            string     `json:"id"`
	Source        string     `json:"source,omitempty"`
	Type          string     `json:"type,omitempty"`
	Topic         string     `json:"topic,omitempty"`
	Tenant        string     `json:"tenant"`
	AggregateType string     `json:"aggregate_type,omitempty"`
	AggregateID   string     `json:"aggregate_id,omitempty"`
	Key           string     `json:"key,omitempty"`
	Where         string     `json:"where,omitempty"`
	By            string     `json:"by"`
}

// NewFind returns the command "oncebox find".
func NewFind(s *cli.Session) *cobra.Command {
	var before string
	var limit int
	cmd := &cobra.Command{
		Use: "find TEXT", Short: "Find events and messages by an id, an aggregate, a correlation id, an ordering key or a tenant",
		Long: `Find events and messages. TEXT is an id, an aggregate id, a correlation id or a causation id, or the beginning of one; an ordering key; or a
tenant. The newest are first. oncebox show prints the whole life of one.

No index fits all of these. So the command reads all that waits or is dead, and then the published events, the latest first, for about 5
seconds: a million in a second. It says how far back it has come; go on from there with --before. Of messages that came from another service and
were handled only the id is kept.`,
		Example: `  oncebox find order-7
  oncebox find 0193b2c4
  oncebox find req-81f3 --before 2026-11-20`,
		Args: cli.ExactlyOneID,
	}
	cmd.Flags().StringVar(&before, "before", "", "search only what was recorded before: "+ops.TimeForms)
	cmd.Flags().IntVar(&limit, "limit", 100, "print at most this many")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		until, err := ops.TimeAgo(before, time.Now())
		if err != nil {
			return cli.Exit(cli.ExitUsage, fmt.Errorf("--before: %w", err))
		}
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		found, err := s.View().Find(cmd.Context(), args[0], until, limit)
		switch {
		case errors.Is(err, seek.ErrText):
			return cli.Exit(cli.ExitUsage, err)
		case err != nil:
			return err
		}
		list := make([]FoundItem, len(found.List))
		for n := range found.List {
			list[n] = foundOf(&found.List[n])
		}
		header := []string{"AT", "WHERE", "TYPE", "TOPIC", "TENANT", "AGGREGATE", "ID", "FOUND BY"}
		none := "Nothing was found."
		if !found.Back.IsZero() {
			none = "Nothing was found so far. The search is not finished."
		}
		if err := cli.List(s, list, none, header, (*FoundItem).row); err != nil {
			return err
		}
		if found.More {
			fmt.Fprintln(s.Errs, "There may be more: these are the newest. Give more of the text, or --limit.")
		}
		if !found.Back.IsZero() {
			back := found.Back.UTC().Format(time.RFC3339)
			fmt.Fprintf(s.Errs, "Published events were searched back to %s. For earlier ones: --before %s\n", back, back)
		}
		return nil
	}
	return cmd
}

func foundOf(f *ops.Found) FoundItem {
	return FoundItem{
		At: cli.TimeOf(f.At), ID: f.ID, Source: f.Source, Type: f.Type, Topic: f.Topic, Tenant: f.Tenant, AggregateType: f.AggregateType,
		AggregateID: f.AggregateID, Key: f.Key, Where: f.Where, By: f.By,
	}
}

func (f *FoundItem) row() []string {
	return []string{cli.At(f.At), f.Where, f.Type, f.Topic, f.Tenant, cli.Join(f.AggregateType, f.AggregateID), f.ID, f.By}
}
