package stuck

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/ops"
)

// Item is a stuck thing in the JSON output of stuck. Scripts use the names, so they never change.
type Item struct {
	Kind       ops.Kind   `json:"kind"`
	Since      *time.Time `json:"since,omitempty"`
	ID         string     `json:"id,omitempty"`
	MessageKey string     `json:"message_key,omitempty"`
	Relay      string     `json:"relay,omitempty"`
	Consumer   string     `json:"consumer,omitempty"`
	Type       string     `json:"type,omitempty"`
	Topic      string     `json:"topic,omitempty"`
	Tenant     string     `json:"tenant,omitempty"`
	Key        string     `json:"key,omitempty"`
	Holds      bool       `json:"holds"`
	Step       string     `json:"step,omitempty"`
	Label      string     `json:"label,omitempty"`
	Request    string     `json:"request,omitempty"`
	Caller     string     `json:"caller,omitempty"`
	Principal  string     `json:"principal,omitempty"`
	Attempts   int        `json:"attempts,omitempty"`
	// Limit says when a failing message is given up, and FailedBy which processes failed last.
	Limit    string     `json:"limit,omitempty"`
	FailedBy []string   `json:"failed_by,omitempty"`
	Next     *time.Time `json:"next,omitempty"`
	Error    string     `json:"error,omitempty"`
	// Cause is the common text of the errors of all things with the same cause. Fingerprint names the cause of an event or message, for the commands
	// oncebox failures.
	Cause       string `json:"cause,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Backlog is the number of messages that wait for the consumer at the broker. null: it is unknown, or
	// this is not a consumer. BacklogPrecision is exact, estimated, or at least.
	Backlog          *int64           `json:"backlog,omitempty"`
	BacklogPrecision *count.Precision `json:"backlog_precision,omitempty"`
	// Vanished is true if the processes of a missing relay or consumer did not shut down in order. Connections is the
	// number of consumers that the broker has connected for it.
	Vanished    bool `json:"vanished,omitempty"`
	Connections int  `json:"connections,omitempty"`
	// Actions are the possible actions; Do is the command or advice for the usual one.
	Actions []ops.Action `json:"actions"`
	Do      string       `json:"do"`
	// Or is the command of another action, in place of Do.
	Or string `json:"or,omitempty"`

	// note and back are what operators said about the cause.
	note, back string
}

// New returns the command.
func New(s *cli.Session) *cobra.Command {
	var (
		filter ops.Filter
		limit  int
		each   bool
	)
	cmd := &cobra.Command{
		Use: "stuck", Short: "List what is stuck: events, messages, keys, and parts that do not run", Args: cli.NoArgs,
		Long: `List everything in outbox, inbox and idempotency keys that waits too long, or waits for a decision: since when, why, and which command helps.
Things with the same cause are one entry: their errors differ only in numbers, ids, addresses and quoted text. --each and --json list each thing by
itself. Causes that were archived (oncebox failures archive) are left out until something new fails for them.

Exit code 0: nothing is stuck. 3: something is.`,
		Example: `  oncebox stuck
  oncebox stuck --consumer billing --each
  oncebox stuck --tenant acme --json`,
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.Tenant, "tenant", "", "only things of this tenant")
	flags.StringVar(&filter.Topic, "topic", "", "only things of this topic")
	flags.StringVar(&filter.Consumer, "consumer", "", "only things of this consumer")
	flags.IntVar(&limit, "limit", 100, "list at most this number of causes, or with --each this number of each kind")
	flags.BoolVar(&each, "each", false, "list each thing by itself, not one entry for each cause")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.ChooseBroker(); err != nil {
			return err
		}
		if err := s.OpenList(cmd, limit); err != nil {
			return err
		}
		view, err := s.ViewOfBroker(cmd.Context())
		if err != nil {
			return err
		}
		causes, archived, err := view.Causes(cmd.Context(), filter)
		if err != nil {
			return err
		}
		notes, err := readNotes(cmd.Context(), s, view, filter)
		if err != nil {
			return err
		}
		notes.archived = archived
		// JSON always has each thing: a script can group them by the field fingerprint.
		if !each && !s.JSON {
			return printStuck(s, causes, nil, notes, limit)
		}
		found, err := view.Stuck(cmd.Context(), filter, limit)
		if err != nil {
			return err
		}
		return printStuck(s, causes, itemsOf(s.Program, found), notes, limit)
	}
	return cmd
}

// itemsOf makes the output for things. It is made and not nil, so that JSON has [].
func itemsOf(p cli.Program, found []ops.Stuck) []Item {
	items := make([]Item, len(found))
	for n := range found {
		items[n] = itemOf(p, &found[n])
	}
	return items
}

// itemOf makes the output for a stuck thing. An unknown backlog is null and not 0, which would mean that no message
// waits.
func itemOf(p cli.Program, f *ops.Stuck) Item {
	var backlog *int64
	var precision *count.Precision
	if f.BacklogKnown {
		backlog, precision = &f.Backlog, &f.Precision
	}
	return Item{
		Backlog: backlog, BacklogPrecision: precision, Vanished: f.Vanished, Connections: f.Connections,
		Kind: f.Kind, Since: cli.TimeOf(f.Since), ID: f.ID, MessageKey: f.MessageKey, Relay: f.Relay, Consumer: f.Consumer, Type: f.Type,
		Topic: f.Topic, Tenant: f.Tenant, Key: f.Key, Holds: f.Holds,
		Step: f.Step, Label: f.Label, Request: f.Request, Caller: f.Caller, Principal: f.Principal,
		Attempts: f.Attempts, Limit: f.Limit, FailedBy: f.FailedBy, Next: cli.TimeOf(f.Next), Error: f.Error,
		Cause: ops.CauseOf(f.Error), Fingerprint: f.Fingerprint, Actions: append([]ops.Action{}, f.Kind.Actions()...), Do: next(p, f), Or: other(p, f),
	}
}
