package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
)

type stockChanged struct {
	SKU   string `json:"sku"`
	Delta int    `json:"delta"`
}

func (stockChanged) EventType() string { return "stock.changed" }

// A consumer by itself: messages of one article come in order, each until its handler has returned nil.
func ExampleConsumer() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	registry := event.NewRegistry()
	event.Register[stockChanged](registry)
	broker := memory.New(nil)
	defer broker.Close()

	orders, err := broker.Subscribe(ctx, messaging.Subscription{Topic: "stock", Name: "warehouse"})
	if err != nil {
		panic(err)
	}
	router := messaging.NewRouter(registry)
	messaging.Handle(router, func(ctx context.Context, e stockChanged) error {
		m, _ := messaging.FromContext(ctx)
		if e.Delta == 5 && m.Attempt == 1 {
			fmt.Println("the shelf is being painted, try again")
			return errors.New("cannot be reached")
		}
		fmt.Printf("%s: %+d\n", e.SKU, e.Delta)
		if e.Delta == -2 {
			stop()
		}
		return nil
	})

	var events []event.Envelope
	for n, delta := range []int{5, -1, -2} {
		events = append(events, event.Envelope{
			ID: strconv.Itoa(n), Type: "stock.changed", Source: "shop", TenantID: "default", Topic: "stock",
			AggregateType: "article", AggregateID: "apple", RoutingKey: "apple",
			ContentType: event.ContentTypeJSON, Payload: fmt.Appendf(nil, `{"sku":"apple","delta":%d}`, delta),
		})
	}
	if err := broker.Publish(ctx, events); err != nil {
		panic(err)
	}
	consumer := messaging.NewConsumer(orders, router, &messaging.ConsumerConfig{Name: "warehouse", Logger: slog.New(slog.DiscardHandler)})
	if err := consumer.Run(ctx); err != nil {
		panic(err)
	}
	// Output:
	// the shelf is being painted, try again
	// apple: +5
	// apple: -1
	// apple: -2
}

// Without a broker: the handlers are called by the publisher, which is the projector as a rule.
func ExampleDirect() {
	publisher := messaging.Direct(messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
		fmt.Println("handling", m.ID)
		if m.ID == "apple-1" {
			return errors.New("not now")
		}
		return nil
	}))
	err := publisher.Publish(context.Background(), []event.Envelope{
		{ID: "apple-1", Topic: "stock", RoutingKey: "apple"},
		{ID: "apple-2", Topic: "stock", RoutingKey: "apple"},
		{ID: "pear-1", Topic: "stock", RoutingKey: "pear"},
	})
	fmt.Println(err)
	// Output:
	// handling apple-1
	// handling pear-1
	// messaging: 2 messages were not published, the first is #0: not now
}
