package alone

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/projector"
)

// Outbox announces that a customer has signed up, and publishes that until ctx is done. broker is for example what pulsar.Connect
// returns.
func Outbox(ctx context.Context, db *bun.DB, broker messaging.Publisher) error {
	if err := migrations.Up(ctx, db, nil); err != nil { // the tables of oncebox
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS customers (id bigserial PRIMARY KEY, email text)"); err != nil {
		return err
	}
	store := outbox.NewStore(db, &outbox.Config{Source: "shop"})
	err := db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw("INSERT INTO customers (email) VALUES (?)", "ann@example.org").Exec(ctx); err != nil {
			return err
		}
		_, err := store.Add(ctx, tx, "mail", map[string]string{"to": "ann@example.org"})
		return err
	})
	if err != nil {
		return err // neither the row nor the event is stored
	}
	store.Wake() // after COMMIT: a relay in this process publishes now, not at its next look

	relay, err := projector.New(broker, nil, store)
	if err != nil {
		return err
	}
	return relay.Run(ctx)
}
