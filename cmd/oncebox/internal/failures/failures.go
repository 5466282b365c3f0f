package failures

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/inbox/state"
	causes "github.com/oncebox/oncebox/operator/failures"
)

// New returns the commands.
func New(s *cli.Session) *cobra.Command {
	return cli.Group("failures", "What fails, grouped by cause: messages and events that are tried again, and dead letters",
		newList(s), newShow(s), newAct(s, &retry), newAct(s, &replay), newAct(s, &discard), newNote(s), newMark(s, &archive), newMark(s, &unarchive))
}

// Item is a group of failures in the JSON output. Scripts use the names, so they never change.
type Item struct {
	Fingerprint string `json:"fingerprint"`
	Consumer    string `json:"consumer,omitempty"`
	Topic       string `json:"topic,omitempty"`
	Type        string `json:"type"`
	Cause       string `json:"cause"`
	// Failing counts what is tried again, Dead the dead letters. With More there may be more of them.
	Failing     int  `json:"failing"`
	FailingMore bool `json:"failing_more,omitempty"`
	Dead        int  `json:"dead"`
	DeadMore    bool `json:"dead_more,omitempty"`

	First *time.Time `json:"first,omitempty"`
	Last  *time.Time `json:"last,omitempty"`
	Next  *time.Time `json:"next,omitempty"`
	// ExampleID is the id of the latest failure, and Error its error.
	ExampleID string `json:"example_id,omitempty"`
	Error     string `json:"error,omitempty"`
	// FailedBy are the processes whose tries failed last.
	FailedBy []string `json:"failed_by,omitempty"`
	// Limit says when the latest failing message is given up. Only failures show has it.
	Limit string `json:"limit,omitempty"`

	Note    string     `json:"note,omitempty"`
	NotedBy string     `json:"noted_by,omitempty"`
	NotedAt *time.Time `json:"noted_at,omitempty"`
	// Archived is true until something fails that is later than the archive. Then Back is true.
	Archived    bool       `json:"archived"`
	Back        bool       `json:"back"`
	ArchivedBy  string     `json:"archived_by,omitempty"`
	ArchivedAt  *time.Time `json:"archived_at,omitempty"`
	ArchivedWhy string     `json:"archived_why,omitempty"`
}

func itemOf(g *causes.Group) Item {
	x := g.Example()
	return Item{
		Fingerprint: g.Fingerprint, Consumer: g.Consumer, Topic: g.Topic, Type: g.Type, Cause: g.Cause,
		Failing: g.Failing.Count, FailingMore: g.Failing.More, Dead: g.Dead.Count, DeadMore: g.Dead.More,
		First: cli.TimeOf(g.First()), Last: cli.TimeOf(g.Last()), Next: cli.TimeOf(g.Failing.Next),
		ExampleID: x.ID, Error: x.Error, FailedBy: g.Failing.FailedBy,
		Note: g.Note, NotedBy: g.NotedBy, NotedAt: cli.TimeOf(g.NotedAt),
		Archived: g.IsArchived(), Back: g.IsBack(), ArchivedBy: g.ArchivedBy, ArchivedAt: cli.TimeOf(g.ArchivedAt), ArchivedWhy: g.ArchivedWhy,
	}
}

// where returns the place of the failures in words.
func (i *Item) where() string {
	if i.Consumer != "" {
		return i.Consumer
	}
	return "relay, topic " + i.Topic
}

// number formats a count that may be a lower bound.
func number(n int, more bool) string {
	if more {
		return strconv.Itoa(n) + "+"
	}
	return strconv.Itoa(n)
}

func newList(s *cli.Session) *cobra.Command {
	var consumer string
	var archived bool
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List what fails, one line for each cause, the latest failure first", Args: cli.NoArgs,
		Long: `List what fails, one line for each cause: messages and events that are tried again, and dead letters. Failures of one consumer, or of the relay
at one topic, with one event type are one line if their errors differ only in numbers, ids, addresses and quoted text.`,
		Example: "  oncebox failures list\n  oncebox failures list --consumer mailer --json\n  oncebox failures list --archived",
	}
	flags := cmd.Flags()
	flags.StringVar(&consumer, "consumer", "", "only failures of this consumer")
	flags.BoolVar(&archived, "archived", false, "only archived causes")
	flags.IntVar(&limit, "limit", 100, "list at most this number of causes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.OpenList(cmd, limit); err != nil {
			return err
		}
		found, err := s.View().Failures().List(cmd.Context())
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(found, func(g causes.Group) bool { return consumer != "" && g.Consumer != consumer })
		return printGroups(s, found, archived, limit)
	}
	return cmd
}

// printGroups prints the groups that are archived, or the others, and says how many are left out.
func printGroups(s *cli.Session, found []causes.Group, archived bool, limit int) error {
	items, others := []Item{}, 0
	for n := range found {
		if found[n].IsArchived() != archived {
			others++
			continue
		}
		items = append(items, itemOf(&found[n]))
	}
	all := len(items)
	items = items[:min(all, limit)]
	none := "Nothing fails."
	if archived {
		none = "Nothing that fails is archived."
	}
	header := []string{"FINGERPRINT", "AT", "TYPE", "FAILING", "DEAD", "SINCE", "LAST", "NEXT TRY", "CAUSE", "NOTE"}
	err := cli.List(s, items, none, header, func(i *Item) []string {
		note := cli.Short(i.Note, 40)
		if i.Back {
			note = cli.Join("back from the archive;", note)
		}
		return []string{
			i.Fingerprint, cli.Short(i.where(), 40), cli.Short(i.Type, 40), number(i.Failing, i.FailingMore), number(i.Dead, i.DeadMore),
			cli.At(i.First), cli.At(i.Last), cli.At(i.Next), cli.Short(i.Cause, 80), note,
		}
	})
	if err != nil {
		return err
	}
	if all > limit {
		fmt.Fprintf(s.Errs, "%d of %d shown: --limit %d shows all.\n", limit, all, all)
	}
	if others > 0 && !archived {
		fmt.Fprintf(s.Errs, "%s archived: %s\n", cli.Several(others, "more cause is", "more causes are"), s.Typed("failures", "list", "--archived"))
	}
	return nil
}

// takesOne accepts exactly one fingerprint.
func takesOne(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usage(cmd, fmt.Errorf("%s takes one fingerprint, as oncebox failures list shows it, and got %d arguments", cmd.CommandPath(), len(args)))
	}
	return nil
}

func newShow(s *cli.Session) *cobra.Command {
	return &cobra.Command{
		Use: "show FINGERPRINT", Short: "Show all that is known of one cause, with its note and an example", Args: takesOne,
		Example: "  oncebox failures show 3f9a1c0277d4be51",
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := find(cmd, s, args[0])
			if err != nil {
				return err
			}
			item := itemOf(&g)
			limits, err := s.Inbox().State().Limits(cmd.Context())
			if err != nil {
				return err
			}
			if l, known := limits[state.Family(g.Consumer)]; known && g.Failing.Count > 0 {
				item.Limit = l.Text(g.Failing.Example.Attempts, g.Failing.First)
			}
			if s.JSON {
				return s.Document(item)
			}
			return printGroup(s, &item)
		},
	}
}

// find opens the tables and returns a group. An unknown fingerprint has an exit code of its own.
func find(cmd *cobra.Command, s *cli.Session, fingerprint string) (causes.Group, error) {
	if err := s.OpenTables(cmd.Context()); err != nil {
		return causes.Group{}, err
	}
	g, err := s.View().Failures().Show(cmd.Context(), fingerprint)
	if errors.Is(err, causes.ErrUnknown) {
		err = cli.Exit(cli.ExitNothing, fmt.Errorf("nothing that fails has the fingerprint %s; %s shows all", fingerprint, s.Typed("failures", "list")))
	}
	return g, err
}

func printGroup(s *cli.Session, i *Item) error {
	note, archive := i.Note, ""
	if note != "" {
		note += ", by " + i.NotedBy + " at " + cli.At(i.NotedAt)
	}
	if i.ArchivedAt != nil {
		archive = "by " + i.ArchivedBy + " at " + cli.At(i.ArchivedAt) + ": " + i.ArchivedWhy
	}
	back := ""
	if i.Back {
		back, archive = archive, ""
	}
	var do []string
	if i.Failing > 0 && i.Consumer != "" {
		do = append(do, "to do", "mend the cause; they are tried again by themselves, or at once with: "+s.Decided("failures", "retry", i.Fingerprint))
	}
	if i.Dead > 0 {
		do = append(do, "to do", "mend the cause, then: "+s.Decided("failures", "replay", i.Fingerprint))
	}
	return s.Pairs(append([]string{
		"fingerprint", i.Fingerprint, "at", i.where(), "type", i.Type, "cause", i.Cause,
		"failing", number(i.Failing, i.FailingMore), "dead", number(i.Dead, i.DeadMore), "since", cli.At(i.First), "last", cli.At(i.Last),
		"next try", cli.At(i.Next), "the latest", i.Limit, "failed last in", strings.Join(i.FailedBy, ", "),
		"example", i.ExampleID, "its error", cli.Short(i.Error, 400), "note", note, "archived", archive,
		"back since it was archived", back,
	}, do...)...)
}
