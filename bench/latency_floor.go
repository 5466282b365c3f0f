package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
)

func (p part) topic() string { return "persistent://public/" + p.Namespace + "/" + accountType }

func (p part) client() (client.Client, error) {
	c, err := client.NewClient(client.ClientOptions{URL: p.Pulsar, Logger: plog.NewLoggerWithSlog(slog.Default())})
	if err != nil {
		return nil, fmt.Errorf("connect to Pulsar: %w", err)
	}
	return c, nil
}

// openRawAPI inserts into a table and sends after the COMMIT. Unbatched is the fastest way to send one message.
func (p part) openRawAPI(ctx context.Context, seen *record, start <-chan struct{}) (role, error) {
	session, err := openPgx(ctx, &schema{dsn: p.DSN, name: p.Schema}, latencyWriters)
	if err != nil {
		return role{}, err
	}
	c, err := p.client()
	if err != nil {
		session.close()
		return role{}, err
	}
	shut := func() error {
		c.Close()
		session.close()
		return nil
	}
	producer, err := c.CreateProducer(client.ProducerOptions{Topic: p.topic(), DisableBatching: true, SendTimeout: -1})
	if err != nil {
		return role{}, errors.Join(fmt.Errorf("create a producer: %w", err), shut())
	}
	send := func(ctx context.Context, id string, version int64) error {
		payload, err := newMoneyMoved(id).encode()
		if err != nil {
			return err
		}
		properties := metadata()
		properties["ce_subject"], properties["ce_aggregateversion"] = id, strconv.FormatInt(version, 10)
		_, err = producer.Send(ctx, &client.ProducerMessage{Payload: payload, Key: id, Properties: properties, EventTime: time.Now()})
		return err
	}
	return role{close: shut, run: func(ctx context.Context) error { return p.write(ctx, seen, start, session, send) }}, nil
}

// openRawConsumer notes what the client receives.
func (p part) openRawConsumer(_ context.Context, seen *record, _ <-chan struct{}) (role, error) {
	c, err := p.client()
	if err != nil {
		return role{}, err
	}
	consumer, err := c.Subscribe(client.ConsumerOptions{
		Topic: p.topic(), SubscriptionName: source, Type: client.Failover, SubscriptionInitialPosition: client.SubscriptionPositionEarliest,
	})
	if err != nil {
		c.Close()
		return role{}, fmt.Errorf("subscribe: %w", err)
	}
	shut := func() error {
		consumer.Close()
		c.Close()
		return nil
	}
	return role{close: shut, run: func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for {
			m, err := consumer.Receive(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil:
				return fmt.Errorf("receive: %w", err)
			}
			version, _ := strconv.ParseInt(m.Properties()["ce_aggregateversion"], 10, 64) // 0 is a ghost
			if seen.note(&seen.Arrived, m.Properties()["ce_subject"], version) == p.events() {
				time.AfterFunc(linger, cancel)
			}
			if err := consumer.Ack(m); err != nil {
				return fmt.Errorf("acknowledge: %w", err)
			}
		}
	}}, nil
}
