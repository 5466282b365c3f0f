package events

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/tenants"
)

// tenantDecision is an action on the publishing of a tenant's events, with the texts of its command.
type tenantDecision struct {
	name, short, long, done string
	example                 string
	needsReason             bool
	do                      func(*tenants.Tenants, context.Context, string, operator.By) error
}

var (
	pauseTenant = tenantDecision{
		name: "pause", short: "Stop the publishing of a tenant's events", done: "paused", needsReason: true,
		long: `Stop the publishing of a tenant's events, waiting and new, until oncebox tenants resume. Nothing is lost,
the order of each key is kept, and other tenants go on. Events that expire meanwhile are dead letters when the tenant is resumed.

Relays stop at once, or, where they cannot listen, when they renew their leases. What a relay has handed to the broker by then is published.`,
		example: `  oncebox tenants pause acme --by ann --why "their system is down until 6:00"`,
		do:      (*tenants.Tenants).Pause,
	}
	resumeTenant = tenantDecision{
		name: "resume", short: "Publish a paused tenant's events again, in their order", done: "resumed",
		long:    "Publish the events of a paused tenant again. Events of one ordering key keep their order.",
		example: `  oncebox tenants resume acme --by ann --why "their system is back"`,
		do:      (*tenants.Tenants).Resume,
	}
)

// TenantResult is the JSON output of tenants pause and tenants resume. Scripts use the names, so they never change.
type TenantResult struct {
	Action string `json:"action"`
	Tenant string `json:"tenant"`
}

// newTenantsAct makes pause and resume from one frame. Only pause needs a reason: people who find events
// waiting must learn why.
func newTenantsAct(s *cli.Session, d tenantDecision) *cobra.Command {
	var (
		by  operator.By
		yes bool
	)
	cmd := &cobra.Command{
		Use: d.name + " TENANT", Short: d.short, Long: d.long, Example: d.example,
		Args: cli.Takes(1, d.name+" takes a tenant"),
	}
	why := cli.Optional
	if d.needsReason {
		why = " and the list" + cli.Required
	}
	cli.DecisionFlags(cmd.Flags(), &by, &yes, cli.Required, why)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		errs := []error{cli.NeedsActor(by.Actor)}
		if d.needsReason && strings.TrimSpace(by.Reason) == "" {
			errs = append(errs, errors.New("--why is missing: say why; people who find the tenant paused read it"))
		}
		if err := errors.Join(errs...); err != nil {
			return cli.Usage(cmd, err)
		}
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		tenant := cli.Printable(args[0])
		if err := s.Confirm(yes, fmt.Sprintf("%s the tenant %s?", d.name, tenant)); err != nil {
			return err
		}
		err := d.do(s.Outbox().Tenants(), cmd.Context(), args[0], by)
		// The tenant is in the wanted state already, perhaps by another operator. A script that repeats the
		// command can ignore this exit code.
		switch {
		case errors.Is(err, tenants.ErrPaused), errors.Is(err, tenants.ErrNotPaused):
			return cli.Exit(cli.ExitNothing, err)
		case err != nil:
			return err
		case s.JSON:
			return s.Document(TenantResult{d.name, args[0]})
		}
		_, err = fmt.Fprintf(s.Out, "The tenant %s is %s.\n", tenant, d.done)
		return err
	}
	return cmd
}
