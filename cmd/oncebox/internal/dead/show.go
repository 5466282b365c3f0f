package dead

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/ops"
)

func newDeadShow(s *cli.Session) *cobra.Command {
	var (
		f       selection
		payload bool
	)
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show everything about a dead letter",
		Long: "Show everything about the dead letters with this id: one event may be dead in the outbox and at several consumers.\n" +
			"The payload is shown with --payload.",
		Example: `  oncebox dead show 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e
  oncebox dead show 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e --consumer billing --payload`,
		Args: cli.ExactlyOneID,
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&payload, "payload", false, "show the payload too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.ID = args[0]
		if err := f.complete(time.Now()); err != nil {
			return cli.Usage(cmd, err)
		}
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		list, err := whole(cmd.Context(), s, &f, payload)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return cli.Exit(cli.ExitNothing, fmt.Errorf("no dead letter has the id %s", f.ID))
		}
		if s.JSON {
			return s.Document(list)
		}
		for n := range list {
			if n > 0 {
				fmt.Fprintln(s.Out)
			}
			if err := printLetter(s, &list[n], f.ID); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

// whole reads the selected dead letters with all their fields, and with their payloads if asked to. A payload may hold
// personal data, so it is not read without need.
func whole(ctx context.Context, s *cli.Session, f *selection, payload bool) ([]Letter, error) {
	found, err := letters(ctx, s, f, cli.Most)
	list := lettersOf(found)
	for n := range found {
		if !payload || err != nil {
			break
		}
		var whole ops.Letter
		whole, err = s.View().Dead().Show(ctx, found[n].Ref)
		list[n].setPayload(whole.Envelope.Payload)
	}
	return list, err
}

func printLetter(s *cli.Session, l *Letter, id string) error {
	version := ""
	if l.AggregateVersion > 0 {
		version = strconv.FormatInt(l.AggregateVersion, 10)
	}
	behind := ""
	if l.Holds {
		behind = "later events or messages of its ordering key wait until it is replayed or discarded"
	}
	// Each printed command names the box or the consumer, because the same id may be dead in the outbox and
	// at several consumers.
	act := func(name string, more ...string) string {
		words := []string{"dead", name, id, "--outbox"}
		if l.Consumer != "" {
			words = []string{"dead", name, id, "--consumer", l.Consumer}
		}
		return s.Decided(append(words, more...)...)
	}
	pairs := []string{
		"id", l.ID, "dead", l.of() + ", since " + cli.Moment(l.DiedAt), "error", l.Error,
		"tries", strconv.Itoa(l.Attempts), "failed last in", l.FailedBy, "behind it", behind,
		"type", l.Type + " version " + strconv.Itoa(l.SchemaVersion), "topic", l.Topic, "tenant", l.Tenant, "source", l.Source,
		"aggregate", cli.Join(l.AggregateType, l.AggregateID), "version", version, "key", l.Key, "occurred", cli.Moment(l.OccurredAt), "content", l.ContentType,
	}
	// Sorted by name, so that two outputs can be compared.
	for _, name := range slices.Sorted(maps.Keys(l.Metadata)) {
		pairs = append(pairs, "metadata "+name, l.Metadata[name])
	}
	pairs = append(pairs, "payload", string(l.Payload), "payload, base64", l.Payload64)
	return s.Pairs(append(pairs,
		"to do", "mend the cause, then: "+act("replay"),
		"or", "with another payload: "+act("edit", "--why", "the payload was wrong"),
		"or", "delete it for good: "+act("discard", "--why", "nobody needs it"))...)
}
