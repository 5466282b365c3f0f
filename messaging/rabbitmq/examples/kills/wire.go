package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/examples/orders/shop"
)

const (
	// exchange is the exchange to which the adapter publishes all topics.
	exchange = "oncebox"
	// queue gets a copy of each message.
	queue = "kills"
)

// wire reads a queue of its own with RabbitMQ's client.
type wire struct{ url string }

// watch makes the queue, because RabbitMQ keeps no message for a queue that comes later.
func watch(context.Context) (kills.Wire, error) {
	w := wire{os.Getenv(variable)}
	return w, w.with(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
			return err
		}
		return ch.QueueBind(queue, shop.OrderTopic+".#", exchange, false, nil)
	})
}

// Read implements kills.Wire. It removes the queue.
func (w wire) Read(ctx context.Context) (messages []kills.Message, err error) {
	err = w.with(func(ch *amqp.Channel) error {
		for ctx.Err() == nil {
			d, ok, err := ch.Get(queue, true)
			if err != nil {
				return err
			}
			if !ok {
				_, err := ch.QueueDelete(queue, false, false, false)
				return err
			}
			attributes := map[string]string{}
			for name, value := range d.Headers {
				if attribute, ok := strings.CutPrefix(name, "cloudEvents_"); ok {
					attributes[attribute] = fmt.Sprint(value)
				}
			}
			// The routing key is order.@7. The adapter's queues get whole lanes, so a lane is what a partition is elsewhere.
			_, lane, _ := strings.Cut(d.RoutingKey, "@")
			partition, err := strconv.Atoi(lane)
			if err != nil {
				return fmt.Errorf("routing key %s: %w", d.RoutingKey, err)
			}
			messages = append(messages, kills.Message{Partition: partition, Attributes: attributes, Payload: d.Body})
		}
		return ctx.Err()
	})
	return messages, err
}

// with connects for one call of fn.
func (w wire) with(fn func(ch *amqp.Channel) error) error {
	conn, err := amqp.Dial(w.url)
	if err != nil {
		return err
	}
	ch, err := conn.Channel()
	if err == nil {
		err = fn(ch)
	}
	return errors.Join(err, conn.Close())
}
