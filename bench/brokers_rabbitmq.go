package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging/rabbitmq"
	"github.com/oncebox/oncebox/messaging/wire"
)

// rabbitSite is a RabbitMQ server.
type rabbitSite struct{ rabbit *devenv.RabbitMQServer }

func openRabbitSite(ctx context.Context) (brokerSite, error) {
	server, err := devenv.RabbitMQ(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &rabbitSite{server}, nil
}

func (*rabbitSite) server() string { return "RabbitMQ 3.10" }

func (*rabbitSite) settings() string {
	return "deferred confirms on one channel, mandatory, persistent, 4 quorum queues, 2,000 pending"
}

func (s *rabbitSite) connect(ctx context.Context) (oncebox.Broker, error) {
	return rabbitmq.Connect(ctx, &rabbitmq.Config{URL: s.rabbit.URL, Queues: partitions})
}

func (s *rabbitSite) close() error { return s.rabbit.Stop() }

// rabbitPending is the number of messages without a receipt. More are not faster.
const rabbitPending = 2000

func (s *rabbitSite) byHand(_ context.Context, topic string, sample []event.Envelope) (hand, error) {
	conn, err := amqp.Dial(s.rabbit.URL)
	if err != nil {
		return nil, fmt.Errorf("connect to RabbitMQ: %w", err)
	}
	h := &rabbitHand{conn: conn, topic: topic}
	if h.channel, err = conn.Channel(); err != nil {
		return nil, errors.Join(err, h.close())
	}
	for n := range partitions {
		args := amqp.Table{"x-queue-type": "quorum"}
		if _, err := h.channel.QueueDeclare(h.queue(n), true, false, false, false, args); err != nil {
			return nil, errors.Join(fmt.Errorf("make a queue: %w", err), h.close())
		}
	}
	if err := h.channel.Confirm(false); err != nil {
		return nil, errors.Join(err, h.close())
	}
	format := wire.NewFormat(wire.Binding{Prefix: "cloudEvents_", CarriesKey: true, MaxName: 255})
	for i := range sample {
		m := amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: sample[i].ID, Body: sample[i].Payload, Headers: amqp.Table{}}
		for key, value := range format.Properties(nil, &sample[i]) {
			m.Headers[key] = value
		}
		h.messages = append(h.messages, m)
	}
	return h, nil
}

// rabbitHand publishes by amqp091-go.
type rabbitHand struct {
	conn     *amqp.Connection
	channel  *amqp.Channel
	topic    string
	messages []amqp.Publishing
}

func (h *rabbitHand) queue(n int) string { return h.topic + "-" + strconv.Itoa(n) }

func (h *rabbitHand) publish(ctx context.Context, i int) (*amqp.DeferredConfirmation, error) {
	return h.channel.PublishWithDeferredConfirmWithContext(ctx, "", h.queue(i%partitions), true, false, h.messages[i%len(h.messages)])
}

func (h *rabbitHand) flood(ctx context.Context, n int) error {
	pending := make([]*amqp.DeferredConfirmation, 0, n)
	for i := range n {
		c, err := h.publish(ctx, i)
		if err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		pending = append(pending, c)
		if i >= rabbitPending {
			if err := confirm(ctx, pending[i-rabbitPending]); err != nil {
				return err
			}
		}
	}
	for _, c := range pending[max(0, n-rabbitPending):] {
		if err := confirm(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func confirm(ctx context.Context, c *amqp.DeferredConfirmation) error {
	acked, err := c.WaitContext(ctx)
	if err == nil && !acked {
		err = errors.New("the broker refused a message")
	}
	return err
}

func (h *rabbitHand) send(ctx context.Context, i int) error {
	c, err := h.publish(ctx, i)
	if err != nil {
		return err
	}
	return confirm(ctx, c)
}

func (h *rabbitHand) close() error {
	for n := range partitions {
		if h.channel != nil {
			_, _ = h.channel.QueueDelete(h.queue(n), false, false, false) // it is not needed again
		}
	}
	return h.conn.Close()
}
