package consumers

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/inbox/parked"
)

// NewParked returns the commands "oncebox parked".
func NewParked(s *cli.Session) *cobra.Command {
	return cli.Group("parked", "Parked messages: their handler failed, or they wait behind such a "+
		"message", newParkedList(s), newParkedRetry(s), newParkedGiveUp(s))
}

// parkedSelection is the part of the parked messages that a command is about.
type parkedSelection struct {
	consumer, tenant, topic, kind, text string
}

// flags are the same for list and retry, so an operator can look at exactly the messages that a retry will take.
func (f *parkedSelection) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.consumer, "consumer", "", "only messages of this consumer")
	flags.StringVar(&f.tenant, "tenant", "", "only those of this tenant")
	flags.StringVar(&f.topic, "topic", "", "only those of this topic")
	flags.StringVar(&f.kind, "type", "", "only those of this event type")
	flags.StringVar(&f.text, "error", "", "only messages whose last error contains exactly this text")
}

// isEmpty reports whether no flag selects anything, which retry accepts only together with --all.
func (f *parkedSelection) isEmpty() bool { return *f == parkedSelection{} }

func (f *parkedSelection) filter() parked.Filter {
	return parked.Filter{Consumer: f.consumer, TenantID: f.tenant, Topic: f.topic, Type: f.kind, Error: f.text}
}

// ParkedItem is a message in the JSON output of parked list. Scripts use the names, so they never change.
type ParkedItem struct {
	Consumer   string          `json:"consumer"`
	MessageKey string          `json:"message_key"`
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	Topic      string          `json:"topic"`
	Tenant     string          `json:"tenant"`
	Source     string          `json:"source"`
	Key        string          `json:"key,omitempty"`
	State      parked.KeyState `json:"state"`
	First      bool            `json:"first"`
	ParkedAt   time.Time       `json:"parked_at"`
	Attempts   int             `json:"attempts"`
	Next       *time.Time      `json:"next,omitempty"`
	Error      string          `json:"error,omitempty"`
	// FailedBy is the process whose try failed last.
	FailedBy string `json:"failed_by,omitempty"`
}

func newParkedList(s *cli.Session) *cobra.Command {
	var (
		f     parkedSelection
		first bool
		limit int
	)
	cmd := &cobra.Command{
		Use: "list", Short: "List the parked messages, ordering key by ordering key, without their payloads", Args: cli.NoArgs,
		Long: `List the parked messages: messages whose handler failed, and the messages behind them, ordering key by ordering key. The first one of a key
is tried; the others follow when it is handled. --first lists only the first one of each key.`,
		Example: `  oncebox parked list --first
  oncebox parked list --consumer billing --error "connection refused" --json`,
	}
	f.flags(cmd)
	cmd.Flags().BoolVar(&first, "first", false, "only the first one of each key")
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most this number")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.OpenList(cmd, limit); err != nil {
			return err
		}
		filter := f.filter()
		filter.FirstOnly = first
		// One message more than asked for shows whether there are more. Only then the rest is counted,
		// because counting reads all that match.
		page, err := s.Inbox().Parked().List(cmd.Context(), filter, nil, limit+1)
		if err != nil {
			return err
		}
		list := make([]ParkedItem, min(len(page), limit))
		for n := range list {
			p := &page[n]
			list[n] = ParkedItem{
				p.Key.Consumer, p.Key.MessageKey, p.Envelope.ID, p.Envelope.Type, p.Envelope.Topic, p.Key.TenantID, p.Key.Source, p.OrderingKey,
				p.State, p.First, p.ParkedAt, p.Attempts, cli.TimeOf(p.DueAt), p.Error, p.FailedBy,
			}
		}
		if err := printParked(s, list); err != nil || len(page) <= limit {
			return err
		}
		all, err := s.Inbox().Parked().Count(cmd.Context(), filter)
		fmt.Fprintf(s.Errs, "%d of %d shown: --limit %d shows all.\n", len(list), all, all)
		return err
	}
	return cmd
}

func printParked(s *cli.Session, list []ParkedItem) error {
	header := []string{"PARKED", "CONSUMER", "MESSAGE KEY", "TYPE", "TENANT", "KEY", "TRIES", "NEXT", "ERROR"}
	return cli.List(s, list, "No parked message matches.", header, func(p *ParkedItem) []string {
		// Messages behind the first one have not been tried, so 0 tries would mislead. They say "behind" instead.
		tries, next := "behind", ""
		if p.First {
			tries, next = strconv.Itoa(p.Attempts), cli.At(p.Next)
		}
		return []string{cli.Moment(p.ParkedAt), p.Consumer, p.MessageKey, p.Type, p.Tenant, cli.Short(p.Key, 40), tries, next, cli.Short(p.Error, 80)}
	})
}
