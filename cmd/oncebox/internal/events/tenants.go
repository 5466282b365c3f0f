package events

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox/tenants"
)

// NewTenants returns the commands "oncebox tenants".
func NewTenants(s *cli.Session) *cobra.Command {
	return cli.Group("tenants", "Pause and resume tenants, and move them to other relays",
		newTenantsList(s), newTenantsMove(s), newTenantsAct(s, pauseTenant), newTenantsAct(s, resumeTenant))
}

// TenantItem is a tenant in the JSON output of tenants list. Scripts use the names, so they never change.
type TenantItem struct {
	Tenant string     `json:"tenant"`
	Group  int16      `json:"group"`
	Since  *time.Time `json:"since,omitempty"`
	Paused *PauseItem `json:"paused,omitempty"`
}

// PauseItem is the pause of a tenant.
type PauseItem struct {
	Since time.Time `json:"since"`
	By    string    `json:"by"`
	Why   string    `json:"why"`
}

// tenantItems merges the moved and the paused tenants, ordered by group and name. A tenant may be both, and
// then has one line.
func tenantItems(moved []tenants.Group, paused []tenants.Pause) []TenantItem {
	list := []TenantItem{}
	for n := range paused {
		p := &paused[n]
		list = append(list, TenantItem{Tenant: p.Tenant, Paused: &PauseItem{p.Since, p.Actor, p.Reason}})
	}
	// Both lists are short: they are made by hand. So a search for each tenant is fast enough.
	for n := range moved {
		t := &moved[n]
		found := slices.IndexFunc(list, func(i TenantItem) bool { return i.Tenant == t.Tenant })
		if found < 0 {
			found, list = len(list), append(list, TenantItem{Tenant: t.Tenant})
		}
		list[found].Group, list[found].Since = t.Group, cli.TimeOf(t.Since)
	}
	slices.SortFunc(list, func(a, b TenantItem) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Tenant, b.Tenant))
	})
	return list
}

func newTenantsList(s *cli.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tenants that are paused, or that are published by another group of relays than 0", Args: cli.NoArgs,
		Example: "  oncebox tenants list",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := s.OpenTables(cmd.Context()); err != nil {
				return err
			}
			moved, err := s.Outbox().Tenants().List(cmd.Context())
			if err != nil {
				return err
			}
			paused, err := s.Outbox().Tenants().Paused(cmd.Context())
			if err != nil {
				return err
			}
			header := []string{"TENANT", "GROUP", "SINCE", "PAUSED", "BY", "WHY"}
			return cli.List(s, tenantItems(moved, paused), "All tenants are in group 0. None is paused.", header, (*TenantItem).row)
		},
	}
}

func (t *TenantItem) row() []string {
	row := []string{t.Tenant, strconv.Itoa(int(t.Group)), cli.At(t.Since)}
	if p := t.Paused; p != nil {
		row = append(row, cli.Moment(p.Since), cli.Short(p.By, 40), cli.Short(p.Why, 80))
	}
	return row
}

func newTenantsMove(s *cli.Session) *cobra.Command {
	var (
		by  operator.By
		yes bool
	)
	cmd := &cobra.Command{
		Use: "move TENANT GROUP", Short: "Let another group of relays publish the events of a tenant",
		Long: `Let another group of relays publish the events of a tenant: from then on the processes with ONCEBOX_OUTBOX_GROUP=GROUP do it. Start them first.
Group 0 is the default. Publishing of all tenants pauses for up to a second; if events of this tenant still wait after that, nothing is changed.`,
		Example: `  oncebox tenants move acme 1 --by ann --why "imports"
  oncebox tenants move acme 0 --by ann --why "the imports are done"`,
		Args: cli.Takes(2, "give a tenant and a group: oncebox tenants move TENANT GROUP"),
	}
	flags := cmd.Flags()
	cli.DecisionFlags(flags, &by, &yes, cli.Required, cli.Required)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		errs := []error{cli.NeedsActor(by.Actor)}
		number, err := strconv.ParseInt(args[1], 10, 16)
		if err != nil || number < 0 {
			errs = append(errs, fmt.Errorf("%q is not a group: give a number, 0 or higher", args[1]))
		}
		if err := errors.Join(errs...); err != nil {
			return cli.Usage(cmd, err)
		}
		if err := s.OpenTables(cmd.Context()); err != nil {
			return err
		}
		if err := s.Confirm(yes, fmt.Sprintf("move the tenant %s to group %d?", cli.Printable(args[0]), number)); err != nil {
			return err
		}
		if err := s.Outbox().Tenants().Move(cmd.Context(), args[0], int16(number), by); err != nil {
			return err
		}
		if s.JSON {
			return s.Document(TenantItem{Tenant: args[0], Group: int16(number)})
		}
		_, err = fmt.Fprintf(s.Out, "The tenant %s is in group %d.\n", cli.Printable(args[0]), number)
		return err
	}
	return cmd
}
