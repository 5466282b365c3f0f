package oncebox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/messaging"
)

// ForeignError means that the tables belong to another service: consumers of other services run on them, and none of this service.
type ForeignError struct {
	// Source is the service that was started.
	Source string
	// Owners are the services whose consumers the tables have.
	Owners []string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("oncebox: the tables of oncebox in this database belong to %s, and this service is %q. Nothing was made or changed. Correct "+
		"ONCEBOX_DATABASE_URL or ONCEBOX_SOURCE. If both services are to use this database, give this one its own schema (ONCEBOX_SCHEMA). If the service "+
		"was renamed, set the column source of table inbox_consumer to its new name", strings.Join(e.Owners, ", "), e.Source)
}

// refuseForeign returns a [*ForeignError] if the tables belong to another service. At the first start there are none.
func refuseForeign(ctx context.Context, a *App) error {
	known, err := a.Inbox.Owners(ctx)
	if pgerr.Code(err) == pgerr.UndefinedTable {
		return nil
	}
	if err != nil {
		return fmt.Errorf("oncebox: look for the services that the tables belong to: %w", err)
	}
	owners := slices.Compact(slices.Sorted(maps.Values(known)))
	isOurs := func(owner string) bool {
		return owner == a.cfg.UoW.Source ||
			slices.ContainsFunc(a.Inbox.Subscriptions(), func(s messaging.Subscription) bool { return s.Source == owner }) // inbox.OwnedBy
	}
	if len(owners) == 0 || slices.ContainsFunc(owners, isOurs) {
		return nil
	}
	return &ForeignError{Source: a.cfg.UoW.Source, Owners: owners}
}
