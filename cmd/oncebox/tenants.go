package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/outbox"
)

func newTenants(s *session) *cobra.Command {
	return group("tenants", "Tenants that have lanes of their own", newTenantsList(s), newTenantsMove(s))
}

// tenantItem is what tenants prints as JSON. The names stay.
type tenantItem struct {
	Tenant string     `json:"tenant"`
	Group  int16      `json:"group"`
	Since  *time.Time `json:"since,omitempty"`
}

func newTenantsList(s *session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tenants that are in other groups of lanes than 0", Args: noArgs,
		Example: "  oncebox tenants list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.openTables(cmd.Context()); err != nil {
				return err
			}
			tenants, err := s.outbox().Tenants(cmd.Context())
			if err != nil {
				return err
			}
			list := make([]tenantItem, len(tenants))
			rows := make([][]string, len(tenants))
			for n, t := range tenants {
				list[n] = tenantItem{t.Tenant, t.Group, timeOf(t.Since)}
				rows[n] = []string{t.Tenant, strconv.Itoa(int(t.Group)), moment(t.Since)}
			}
			switch {
			case s.json:
				return s.document(list)
			case len(list) == 0:
				fmt.Fprintln(s.errs, "All tenants are in group 0.")
				return nil
			}
			return s.table([]string{"TENANT", "GROUP", "SINCE"}, rows)
		},
	}
}

func newTenantsMove(s *session) *cobra.Command {
	var (
		by  outbox.By
		yes bool
	)
	cmd := &cobra.Command{
		Use: "move TENANT GROUP", Short: "Give a tenant the lanes of a group of relays",
		Long: `Give a tenant the lanes of a group of relays: processes with ONCEBOX_OUTBOX_GROUP=GROUP publish its events from then on. Start them first.
Group 0 takes a tenant back. Everybody's events are held up for a second at most; if events of the tenant wait for longer, nothing is changed.`,
		Example: `  oncebox tenants move acme 1 --by ann --why "imports"
  oncebox tenants move acme 0 --by ann --why "the imports are done"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usage(cmd, errors.New("move takes a tenant and a group"))
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&by.Actor, "by", "", "who decides: a login or an address, for the audit (required)")
	flags.StringVar(&by.Reason, "why", "", "why, for the audit (required)")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		errs := []error{needsActor(by.Actor)}
		number, err := strconv.ParseInt(args[1], 10, 16)
		if err != nil || number < 0 {
			errs = append(errs, fmt.Errorf("%q is no group: groups are numbers from 0 on", args[1]))
		}
		if err := errors.Join(errs...); err != nil {
			return usage(cmd, err)
		}
		if err := s.openTables(cmd.Context()); err != nil {
			return err
		}
		if err := s.confirm(yes, fmt.Sprintf("move the tenant %s to group %d?", printable(args[0]), number)); err != nil {
			return err
		}
		if err := s.outbox().MoveTenant(cmd.Context(), args[0], int16(number), by); err != nil {
			return err
		}
		if s.json {
			return s.document(tenantItem{Tenant: args[0], Group: int16(number)})
		}
		_, err = fmt.Fprintf(s.out, "The tenant %s is in group %d.\n", printable(args[0]), number)
		return err
	}
	return cmd
}
