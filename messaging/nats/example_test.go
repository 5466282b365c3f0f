package nats_test

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/nats"
)

// The README quotes this file, and a test compares the two.

func Example() {
	run := func() (err error) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		cfg, err := config.FromEnv() // ONCEBOX_DATABASE_URL, ONCEBOX_SOURCE, ...
		if err != nil {
			return err
		}
		db, err := config.OpenDB(ctx, cfg)
		if err != nil {
			return err
		}
		defer db.Close()
		broker, err := nats.Connect(ctx, &nats.Config{URL: "nats://localhost:4222"})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, broker.Close()) }()
		app, err := oncebox.New(db, broker, cfg)
		if err != nil {
			return err
		}
		app.Consume("order", "sales", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
			fmt.Println(m.Type, m.ID) // within the transaction that notes that the message was handled
			return nil
		}))
		return app.Run(ctx) // publishes and consumes until SIGTERM
	}
	if err := run(); err != nil {
		fmt.Println(err)
	}
}
