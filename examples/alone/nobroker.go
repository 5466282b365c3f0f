package alone

import (
	"context"

	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/uow"
)

// ShippingWithoutBroker handles each event of the topic "order" once, until ctx is done. The database carries the
// events: they come from an outbox in the same database, and this program also runs its relay.
func ShippingWithoutBroker(ctx context.Context, db *bun.DB) error {
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
	if err := box.Consume("order", "shipping", messaging.HandlerFunc(ship), inbox.OwnedBy("shop")); err != nil {
		return err
	}
	if err := box.SubscribeAll(ctx); err != nil { // before the relay begins: a consumer gets only events that are relayed after its subscription
		return err
	}
	relay, err := projector.New(box.Publisher(), nil, outbox.NewStore(db, &outbox.Config{Source: "shop"}))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return relay.Run(ctx) })
	group.Go(func() error { return box.Run(ctx, nil) })
	return group.Wait()
}
