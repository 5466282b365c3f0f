package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/examples/orders/shop"
)

// wire reads the stream of the topic with an ordered consumer of NATS's client. The stream keeps its messages whether they were handled or not.
type wire struct{ url string }

func watch(context.Context) (kills.Wire, error) { return wire{os.Getenv(variable)}, nil }

// Read implements kills.Wire.
func (w wire) Read(ctx context.Context) (messages []kills.Message, err error) {
	conn, err := natsclient.Connect(w.url)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(ctx, "oncebox-"+shop.OrderTopic)
	if err != nil {
		return nil, err
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, err
	}
	received, err := consumer.Messages()
	if err != nil {
		return nil, err
	}
	defer received.Stop()
	for range stream.CachedInfo().State.Msgs {
		m, err := received.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, err
		}
		attributes := map[string]string{}
		for name := range m.Headers() {
			if attribute, ok := strings.CutPrefix(name, "ce-"); ok {
				attributes[attribute] = m.Headers().Get(name)
			}
		}
		// The subject is oncebox.order.7.
		partition, err := strconv.Atoi(m.Subject()[strings.LastIndex(m.Subject(), ".")+1:])
		if err != nil {
			return nil, fmt.Errorf("subject %s: %w", m.Subject(), err)
		}
		messages = append(messages, kills.Message{Partition: partition, Attributes: attributes, Payload: m.Data()})
	}
	return messages, nil
}
