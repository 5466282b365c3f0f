package alone

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/uow"
)

// Shipping handles each message of the topic "order" once, until ctx is done. broker is for example what pulsar.Connect returns.
func Shipping(ctx context.Context, db *bun.DB, broker messaging.Subscriber) error {
	if err := migrations.Up(ctx, db, nil); err != nil { // the tables of oncebox
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS shipments (order_id text PRIMARY KEY)"); err != nil {
		return err
	}
	units := uow.New(db, nil)
	box := inbox.New(units, nil)
	ship := func(ctx context.Context, m *messaging.Message) error {
		tx := units.DB(ctx) // the transaction in which the message is marked as handled
		_, err := tx.NewRaw("INSERT INTO shipments VALUES (?)", m.AggregateID).Exec(ctx)
		return err
	}
	// OwnedBy: another service that uses the name "shipping" on this topic by mistake is refused, and takes no messages.
	if err := box.Consume("order", "shipping", messaging.HandlerFunc(ship), inbox.OwnedBy("warehouse")); err != nil {
		return err
	}
	return box.Run(ctx, broker) // receives, tries again what failed, and removes old entries
}
