package nats_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/nats"
	"github.com/oncebox/oncebox/serve"
)

// The README quotes this file, and a test compares the two.

func Example() {
	setup := func(_ context.Context, app *oncebox.App) (http.Handler, error) {
		app.Consume("order", "sales", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
			fmt.Println(m.Type, m.ID) // within the transaction that notes that the message was handled
			return nil
		}))
		return nil, nil // no requests
	}
	serve.Main(serve.Service{ // publishes and consumes until SIGTERM
		Source:  "shop",
		Brokers: []brokers.Kind{nats.Kind()}, // the broker is at ONCEBOX_NATS_URL
		Setup:   setup,
	})
}
