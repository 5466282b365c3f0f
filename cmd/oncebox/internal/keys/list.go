package keys

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/idempotency"
)

// Item is a key in the JSON output of keys list. Scripts use the names, so they never change.
type Item struct {
	Key        string     `json:"key"`
	Tenant     string     `json:"tenant"`
	Request    string     `json:"request,omitempty"`
	Caller     string     `json:"caller,omitempty"`
	Principal  string     `json:"principal,omitempty"`
	State      string     `json:"state"`
	Since      time.Time  `json:"since"`
	Epoch      int        `json:"epoch"`
	LeaseUntil *time.Time `json:"lease_until,omitempty"`
	Steps      []string   `json:"steps"`
	// Labels has the label of each step, "" for a step without one.
	Labels []string `json:"labels"`
}

// The states of a key without an answer.
const (
	WorkedOn = "worked on" // a request is using the key
	Free     = "free"      // its request has ended or died, and the next one continues
	Unknown  = "unknown"   // the outcome of a step is unknown, and requests are refused
)

func newKeysList(s *cli.Session) *cobra.Command {
	var (
		tenant string
		limit  int
	)
	cmd := &cobra.Command{
		Use: "list", Short: "List the keys of requests without an answer yet, and steps whose outcome is unknown", Args: cli.NoArgs,
		Long: `List the keys of requests that have no answer yet, the oldest first. A key is

  worked on   a request is being handled; its lease says for how long
  free        its request failed or its process died; the next request with the key continues
  unknown     it is not known whether a step was done. Requests with the key are refused until somebody runs oncebox keys resolve

Only requests that are handled under a lease have such keys. Unknown steps alone are in oncebox stuck.`,
		Example: `  oncebox keys list
  oncebox keys list --tenant acme --json`,
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only those of this tenant")
	cmd.Flags().IntVar(&limit, "limit", 100, "list at most this number")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.OpenList(cmd, limit); err != nil {
			return err
		}
		// One key more than asked for shows whether there are more.
		open, err := s.Keys().Open(cmd.Context(), s.DB, tenant, limit+1)
		if err != nil {
			return err
		}
		list := make([]Item, min(len(open), limit))
		for n := range list {
			list[n] = keyOf(&open[n])
		}
		if err := printKeys(s, list); err != nil {
			return err
		}
		if len(open) > limit {
			fmt.Fprintln(s.Errs, "There are more: a higher --limit lists them.")
		}
		return nil
	}
	return cmd
}

// keyOf gives each key one state. A lease comes first: while a request works, the outcome of its present
// step is naturally open.
func keyOf(o *idempotency.Open) Item {
	state := Free
	switch {
	case o.Leased:
		state = WorkedOn
	case o.Unknown || len(o.Steps) > 0:
		state = Unknown
	}
	return Item{
		Key: o.Key, Tenant: o.Tenant, Request: o.Request, Caller: o.Caller, Principal: o.Principal, State: state, Since: o.CreatedAt, Epoch: o.Epoch,
		LeaseUntil: cli.TimeOf(o.LeaseUntil), Steps: o.Steps, Labels: o.Labels,
	}
}

func printKeys(s *cli.Session, list []Item) error {
	header := []string{"SINCE", "STATE", "TENANT", "REQUEST", "ASKED BY", "STEPS WITHOUT OUTCOME", "LEASE UNTIL", "KEY"}
	return cli.List(s, list, "Every key has an answer: no request is open.", header, func(k *Item) []string {
		return []string{
			cli.Moment(k.Since), k.State, k.Tenant, cli.Short(k.Request, 60), cli.Short(cmp.Or(k.Caller, k.Principal), 30), k.steps(),
			cli.At(k.LeaseUntil), k.Key,
		}
	})
}

// steps returns the steps with their labels.
func (k *Item) steps() string {
	list := make([]string, len(k.Steps))
	for n, step := range k.Steps {
		list[n] = step
		if label := k.Labels[n]; label != "" {
			list[n] += " (" + cli.Short(label, 60) + ")"
		}
	}
	return strings.Join(list, ", ")
}
