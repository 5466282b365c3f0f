package kills

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/examples/orders/shop"
)

// centsOf returns what an event would add to its order's total, by its type.
func centsOf(payload []byte) (map[string]int64, error) {
	var e struct {
		Total int64 `json:"total_cents"`
		Added int64 `json:"added_cents"`
	}
	err := json.Unmarshal(payload, &e)
	return map[string]int64{"order.placed": e.Total, "order.item_added": e.Added}, err
}

// readDatabase fills in what the database knows.
func (e *evidence) readDatabase(ctx context.Context, db bun.IDB) error {
	var orders []struct {
		TenantID, ID, CustomerID, Status string
		TotalCents, Version, ItemTotal   int64
	}
	var sent []struct {
		TenantID, AggregateID, ID, EventType string
		AggregateVersion                     int64
	}
	var summaries []shop.Summary
	err := errors.Join(
		db.NewRaw(`SELECT o.*, (SELECT coalesce(sum(qty * price_cents), 0)::bigint FROM order_items i
			WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id) AS item_total FROM orders o`).Scan(ctx, &orders),
		db.NewRaw(`SELECT tenant_id, aggregate_id, id, event_type, aggregate_version FROM outbox_published`).Scan(ctx, &sent),
		db.NewRaw(`SELECT * FROM customer_summary`).Scan(ctx, &summaries),
	)
	for _, o := range orders {
		e.orders = append(e.orders, orderFact{
			orderKey: orderKey{o.TenantID, o.ID}, customer: o.CustomerID, status: o.Status,
			total: o.TotalCents, version: o.Version, itemTotal: o.ItemTotal,
		})
	}
	for _, s := range sent {
		e.sent = append(e.sent, fact{
			orderKey: orderKey{s.TenantID, s.AggregateID}, id: s.ID, kind: s.EventType, version: s.AggregateVersion,
		})
	}
	e.summaries = map[customer]shop.Summary{}
	for _, s := range summaries {
		e.summaries[customer{s.TenantID, s.CustomerID}] = shop.Summary{
			OrdersPlaced: s.OrdersPlaced, OrdersCancelled: s.OrdersCancelled, TotalCents: s.TotalCents,
		}
	}
	return err
}

// readSummaries asks the service for what the database says it has.
func (e *evidence) readSummaries(ctx context.Context, c *client) error {
	e.shown = map[customer]shop.Summary{}
	for of := range e.summaries {
		s, err := c.summary(ctx, of)
		if err != nil {
			return err
		}
		e.shown[of] = s
	}
	return nil
}

// awaitDrained waits until nothing is on its way any more: no row in the outbox, no message that was not handled.
func (t *Trial) awaitDrained(ctx context.Context) error {
	return eventually(ctx, "the outbox and the subscription to be empty", func(ctx context.Context) error {
		var rows int
		err := t.DB.NewRaw(`SELECT (SELECT count(*) FROM outbox_unsent) + (SELECT count(*) FROM outbox_held)`).Scan(ctx, &rows)
		if err != nil || rows > 0 {
			return errors.Join(err, fmt.Errorf("%d rows wait in the outbox", rows))
		}
		waiting, err := backlog(ctx, t.DB)
		if err != nil || waiting > 0 {
			return errors.Join(err, fmt.Errorf("%d messages wait for the consumers", waiting))
		}
		return nil
	})
}

// backlog returns how many messages were published and not handled. The database counts them, because not every broker counts what a consumer has and
// has not settled.
func backlog(ctx context.Context, db bun.IDB) (n int, err error) {
	err = db.NewRaw(`SELECT (SELECT count(*) FROM outbox_published) - (SELECT count(*) FROM inbox WHERE consumer = ?)`,
		shop.SummaryConsumer).Scan(ctx, &n)
	return n, err
}
