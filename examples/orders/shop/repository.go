package shop

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// ErrNotFound means that the tenant has no such order.
var ErrNotFound = errors.New("no such order")

type orderRow struct {
	bun.BaseModel `bun:"table:orders"`

	TenantID   string `bun:",pk"`
	ID         string `bun:",pk"`
	CustomerID string
	Status     Status
	TotalCents int64
	Version    int64
}

type itemRow struct {
	bun.BaseModel `bun:"table:order_items"`

	TenantID   string `bun:",pk"`
	OrderID    string `bun:",pk"`
	Position   int    `bun:",pk"`
	SKU        string `bun:"sku"`
	Qty        int64
	PriceCents int64
}

// findOrder loads an order of the context's tenant.
func findOrder(ctx context.Context, db bun.IDB, id string) (*Order, error) {
	tenant := event.TenantFrom(ctx)
	var row orderRow
	err := db.NewSelect().Model(&row).Where("tenant_id = ? AND id = ?", tenant, id).Scan(ctx)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("load order %s: %w", id, err)
	}
	var items []itemRow
	err = db.NewSelect().Model(&items).Where("tenant_id = ? AND order_id = ?", tenant, id).Order("position").Scan(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the items of order %s: %w", id, err)
	}
	o := &Order{
		ID: row.ID, CustomerID: row.CustomerID, Status: row.Status, TotalCents: row.TotalCents, Version: row.Version,
		savedItems: len(items),
	}
	for _, i := range items {
		o.Items = append(o.Items, Item{SKU: i.SKU, Qty: i.Qty, PriceCents: i.PriceCents})
	}
	return o, nil
}

// saveOrder writes the order, and the unit stores its events. If another process has changed the order since it was
// loaded, the error is a conflict, and the unit runs its function again with the changed order.
func saveOrder(ctx context.Context, u *uow.Unit, o *Order) error {
	u.Track(o)
	tenant := event.TenantFrom(ctx)
	row := &orderRow{
		TenantID: tenant, ID: o.ID, CustomerID: o.CustomerID, Status: o.Status, TotalCents: o.TotalCents, Version: o.nextVersion(),
	}
	if o.Version == 0 {
		if _, err := u.DB().NewInsert().Model(row).Exec(ctx); err != nil {
			return fmt.Errorf("insert order %s: %w", o.ID, err)
		}
		return saveItems(ctx, u, o)
	}
	result, err := u.DB().NewUpdate().Model(row).Column("status", "total_cents", "version").
		WherePK().Where("version = ?", o.Version).Exec(ctx)
	if err != nil {
		return fmt.Errorf("update order %s: %w", o.ID, err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, fmt.Errorf("%w: order %s is not at version %d any more", uow.ErrConflict, o.ID, o.Version))
	}
	return saveItems(ctx, u, o)
}

func saveItems(ctx context.Context, u *uow.Unit, o *Order) error {
	var rows []itemRow
	for i, item := range o.Items[o.savedItems:] {
		rows = append(rows, itemRow{
			TenantID: event.TenantFrom(ctx), OrderID: o.ID, Position: o.savedItems + i + 1,
			SKU: item.SKU, Qty: item.Qty, PriceCents: item.PriceCents,
		})
	}
	if len(rows) == 0 {
		return nil
	}
	if _, err := u.DB().NewInsert().Model(&rows).Exec(ctx); err != nil {
		return fmt.Errorf("insert the items of order %s: %w", o.ID, err)
	}
	o.savedItems = len(o.Items)
	return nil
}
