package keys

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/operator"
)

// New returns the commands.
func New(s *cli.Session) *cobra.Command {
	return cli.Group("keys", "Idempotency keys of requests", newKeysList(s), newKeysResolve(s))
}

func newKeysResolve(s *cli.Session) *cobra.Command {
	var (
		by      operator.By
		done    string
		notDone bool
		yes     bool
	)
	cmd := &cobra.Command{
		Use: "resolve KEY STEP", Short: "Enter whether a step whose outcome is unknown was done",
		Long: `Enter whether a step whose outcome is unknown was done, that is, whether the other system has executed the call. When no step of the key is
unknown any more, the next request with the key continues. oncebox stuck prints KEY and STEP; of the
key the beginning is enough, as it stands in the log.

The next request uses the value of --done as the result of the step, so it must have the form that the service expects: ask its
developers. It cannot be corrected afterwards.`,
		Example: `  oncebox keys resolve 094d7971a4cb3ae1... charge --done '{"id": "ch_42"}' --by ann --why "the bank has it"
  oncebox keys resolve 094d7971a4cb3ae1... charge --not-done --by ann --why "the bank has no such charge"`,
		Args: cli.Takes(2, "give a key and a step: oncebox keys resolve KEY STEP"),
	}
	flags := cmd.Flags()
	cli.DecisionFlags(flags, &by, &yes, cli.Required, cli.Required)
	flags.StringVar(&done, "done", "", "the step was done, and this is its result, as JSON")
	flags.BoolVar(&notDone, "not-done", false, "the step was not done; the next request does it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		errs := []error{cli.NeedsActor(by.Actor)}
		// The reason is the only record of how the operator knows the outcome: the other system's answer is not stored.
		if by.Reason == "" {
			errs = append(errs, errors.New("--why is missing: say how you found out"))
		}
		if (done == "") != notDone {
			errs = append(errs, errors.New("give either --done RESULT or --not-done"))
		}
		// The next request decodes this text as the result of the step, so a mistake must be found before it is stored.
		if done != "" && !json.Valid([]byte(done)) {
			errs = append(errs, fmt.Errorf("--done %s is not JSON: a text needs its own quotes inside those of the shell, as in --done '\"ch_42\"'", done))
		}
		if err := errors.Join(errs...); err != nil {
			return cli.Usage(cmd, err)
		}
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		outcome := idempotency.StepNotDone()
		if !notDone {
			outcome = idempotency.StepDone(json.RawMessage(done))
		}
		return resolve(s, cmd, args[0], args[1], done, outcome, by, yes)
	}
	return cmd
}

// resolve asks with everything that is known of the step, because a wrong outcome makes the service skip a
// payment or do it twice.
func resolve(s *cli.Session, cmd *cobra.Command, key, step, result string, outcome idempotency.Outcome, by operator.By, yes bool) error {
	u, err := unknownStep(s, cmd, key, step)
	if err != nil {
		return err
	}
	said := []string{fmt.Sprintf("the step %s of tenant %s, begun at %s", step, u.Tenant, cli.Moment(u.BegunAt))}
	for _, detail := range []struct{ name, text string }{{"about", u.Label}, {"of", u.Request}, {"asked by", cli.AskedBy(u.Caller, u.Principal)}} {
		if detail.text != "" {
			said = append(said, detail.name+" "+cli.Printable(detail.text))
		}
	}
	which := strings.Join(said, ", ")
	question := "resolve " + which + ", as not done?"
	if result != "" {
		question = "resolve " + which + ", as done with the result " + result + "?"
	}
	if err := s.Confirm(yes, question); err != nil {
		return err
	}
	// The epoch in u names the attempt that the operator was asked about. A newer attempt is not touched.
	resolved, err := s.Keys().Resolve(cmd.Context(), s.DB, *u, outcome, by)
	switch {
	case err != nil:
		return err
	case !resolved:
		return cli.Exit(cli.ExitNothing, errors.New("the outcome of the step is known by now, or a request is working on the key; nothing was changed"))
	case s.JSON:
		return s.Document(cli.Acted{Action: "resolve", ID: u.Key, Step: step})
	}
	_, err = fmt.Fprintf(s.Out, "The step %s is resolved.\n", step)
	return err
}

// shortestKey is the least number of hexadecimal digits that may stand for a key, if no other key begins
// with them. The log shows 16.
const shortestKey = 8

// unknownStep searches a step by its name and the beginning of its key. It refuses a beginning that fits several keys.
// It looks at the oldest cli.Most steps only.
func unknownStep(s *cli.Session, cmd *cobra.Command, key, step string) (*idempotency.Unknown, error) {
	key = strings.TrimRight(key, ".…")
	if len(key) < shortestKey {
		return nil, cli.Usage(cmd, fmt.Errorf("the key %q is too short: give %d digits of it or more", key, shortestKey))
	}
	list, err := s.Keys().Unknown(cmd.Context(), s.DB, "", cli.Most)
	if err != nil {
		return nil, err
	}
	var found *idempotency.Unknown
	for n := range list {
		switch u := &list[n]; {
		case u.Step != step || !strings.HasPrefix(u.Key, key):
		case found != nil:
			return nil, cli.Exit(cli.ExitNothing, fmt.Errorf("several keys begin with %s: give all digits, as oncebox stuck prints them", key))
		default:
			found = u
		}
	}
	if found == nil {
		return nil, cli.Exit(cli.ExitNothing, fmt.Errorf("no step %s of the key %s is unknown; see oncebox stuck", step, key))
	}
	return found, nil
}
