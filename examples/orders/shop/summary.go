package shop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// SummaryConsumer is the name of the consumer, and so of its subscription and of its entries in the inbox.
const SummaryConsumer = "customer-summary"

// Summary is the read model: what a customer's orders come to.
type Summary struct {
	bun.BaseModel `bun:"table:customer_summary" json:"-"`

	TenantID        string `bun:",pk"               json:"-"`
	CustomerID      string `bun:",pk"               json:"-"`
	OrdersPlaced    int64  `json:"orders_placed"`
	OrdersCancelled int64  `json:"orders_cancelled"`
	TotalCents      int64  `json:"total_cents"` // placed + added, minus cancelled orders
}

// findSummary returns the summary of a customer of the context's tenant. A customer without any event yet has
// an empty one.
func findSummary(ctx context.Context, db bun.IDB, customerID string) (Summary, error) {
	s := Summary{TenantID: event.TenantFrom(ctx), CustomerID: customerID}
	err := db.NewSelect().Model(&s).WherePK().Scan(ctx)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return Summary{}, fmt.Errorf("load the summary of customer %q: %w", customerID, err)
	}
	return s, nil
}

// summarize returns the handler that builds the read model. Adding is not idempotent: the inbox makes sure that each
// message counts once, with a row in the same transaction.
func summarize(units *uow.Manager, registry *event.Registry) messaging.Handler {
	router := messaging.NewRouter(registry)
	messaging.Handle(router, func(ctx context.Context, e OrderPlaced) error {
		return add(ctx, units, Summary{CustomerID: e.CustomerID, OrdersPlaced: 1, TotalCents: e.TotalCents})
	})
	messaging.Handle(router, func(ctx context.Context, e ItemAdded) error {
		return add(ctx, units, Summary{CustomerID: e.CustomerID, TotalCents: e.AddedCents})
	})
	messaging.Handle(router, func(ctx context.Context, e OrderCancelled) error {
		return add(ctx, units, Summary{CustomerID: e.CustomerID, OrdersCancelled: 1, TotalCents: -e.TotalCents})
	})
	return router
}

// add adds to the summary of a customer. The message brought its tenant into the context.
func add(ctx context.Context, units *uow.Manager, more Summary) error {
	more.TenantID = event.TenantFrom(ctx)
	insert := units.DB(ctx).NewInsert().Model(&more).On("CONFLICT (tenant_id, customer_id) DO UPDATE")
	for _, column := range []string{"orders_placed", "orders_cancelled", "total_cents"} {
		insert.Set("? = summary.? + excluded.?", bun.Ident(column), bun.Ident(column), bun.Ident(column))
	}
	if _, err := insert.Exec(ctx); err != nil {
		return fmt.Errorf("add to the summary of customer %q: %w", more.CustomerID, err)
	}
	slog.InfoContext(ctx, "orders: summary updated", "customer", more.CustomerID)
	return nil
}
