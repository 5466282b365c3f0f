package messaging_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/telemetry"
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
	consumer := messaging.NewConsumer(orders, router, &messaging.ConsumerConfig{Name: "warehouse",
		Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}})
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
	// messaging: the broker has not confirmed 2 messages of the call, the first is the one with index 0: not now
}

// What happened long ago is skipped, and each other message is timed: the handler knows of neither. inbox.Use gives the same middleware to a
// consumer whose handler runs in a unit of work.
func ExampleRouter_Use() {
	registry := event.NewRegistry()
	event.Register[stockChanged](registry)
	router := messaging.NewRouter(registry)
	router.Use(messaging.MaxAge(24*time.Hour), func(next messaging.Handler) messaging.Handler {
		return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
			began := time.Now()
			err := next.Handle(ctx, m)
			fmt.Println(m.ID, "took less than a minute:", time.Since(began) < time.Minute)
			return err
		})
	})
	messaging.Handle(router, func(_ context.Context, e stockChanged) error {
		fmt.Printf("%s: %+d\n", e.SKU, e.Delta)
		return nil
	})
	for id, age := range []time.Duration{time.Minute, 48 * time.Hour} {
		err := router.Handle(context.Background(), messaging.NewMessage(event.Envelope{
			ID: strconv.Itoa(id), Type: "stock.changed", Topic: "stock", OccurredAt: time.Now().Add(-age),
			ContentType: event.ContentTypeJSON, Payload: []byte(`{"sku":"apple","delta":5}`),
		}, 1, nil))
		if err != nil {
			panic(err)
		}
	}
	// Output:
	// apple: +5
	// 0 took less than a minute: true
}
