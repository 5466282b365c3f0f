package shop

import (
	"context"
	"fmt"
	"strings"

	"github.com/uptrace/bun"
)

// tables are this service's own, in the schema of the connection, beside those of the framework.
const tables = `
CREATE TABLE IF NOT EXISTS orders (
	tenant_id   text   NOT NULL,
	id          uuid   NOT NULL,
	customer_id text   NOT NULL,
	status      text   NOT NULL CHECK (status IN ('placed', 'cancelled')),
	total_cents bigint NOT NULL CHECK (total_cents >= 0),
	version     bigint NOT NULL CHECK (version > 0),
	PRIMARY KEY (tenant_id, id)
);
CREATE TABLE IF NOT EXISTS order_items (
	tenant_id   text   NOT NULL,
	order_id    uuid   NOT NULL,
	position    int    NOT NULL,
	sku         text   NOT NULL,
	qty         bigint NOT NULL CHECK (qty > 0),
	price_cents bigint NOT NULL CHECK (price_cents >= 0),
	PRIMARY KEY (tenant_id, order_id, position),
	FOREIGN KEY (tenant_id, order_id) REFERENCES orders
);
CREATE TABLE IF NOT EXISTS customer_summary (
	tenant_id        text   NOT NULL,
	customer_id      text   NOT NULL,
	orders_placed    bigint NOT NULL DEFAULT 0,
	orders_cancelled bigint NOT NULL DEFAULT 0,
	total_cents      bigint NOT NULL DEFAULT 0,
	PRIMARY KEY (tenant_id, customer_id)
);`

const missingTables = `SELECT name FROM unnest(ARRAY['orders', 'order_items', 'customer_summary']) AS name WHERE to_regclass(name) IS NULL`

// checkTables reports whether all of them are there.
func checkTables(ctx context.Context, db bun.IDB) error {
	var missing []string
	if err := db.NewRaw(missingTables).Scan(ctx, &missing); err != nil {
		return fmt.Errorf("ask the database for the tables: %w", err)
	}
	if len(missing) > 0 {
		return fmt.Errorf("tables are missing, restart the service to create them: %s", strings.Join(missing, ", "))
	}
	return nil
}
