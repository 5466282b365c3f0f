package main

import (
	"context"
	"errors"

	client "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/devenv"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/messaging/wire"
)

// pulsarSite is a namespace of Pulsar.
type pulsarSite struct {
	*namespace

	stop func() error
}

func openPulsarSite(ctx context.Context) (brokerSite, error) {
	server, err := devenv.Pulsar(ctx, nil)
	if err != nil {
		return nil, err
	}
	n, err := newNamespace(ctx, server)
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return &pulsarSite{n, server.Stop}, nil
}

func (*pulsarSite) server() string { return "Pulsar 4.0.8" }

func (*pulsarSite) settings() string { return floorSettings }

func (s *pulsarSite) connect(ctx context.Context) (oncebox.Broker, error) {
	return pulsar.Connect(ctx, &pulsar.Config{
		URL: s.namespace.server.URL, AdminURL: s.namespace.server.AdminURL, Namespace: s.name, Partitions: partitions,
	})
}

func (s *pulsarSite) close() error {
	s.namespace.close(context.Background())
	return s.stop()
}

// byHand has two producers: batches for a flood, and none for single messages, which would wait for their batch.
func (s *pulsarSite) byHand(ctx context.Context, topic string, sample []event.Envelope) (hand, error) {
	_ = s.removeTopic(ctx, topic) // of the round before; it may not exist
	if err := s.createTopic(ctx, topic); err != nil {
		return nil, err
	}
	h := &pulsarHand{raw: &raw{namespace: s.namespace}}
	var err error
	if h.batched, err = s.client.CreateProducer(floorProducer(s.topic(topic))); err != nil {
		return nil, err
	}
	if h.single, err = s.client.CreateProducer(client.ProducerOptions{Topic: s.topic(topic), DisableBatching: true, SendTimeout: -1}); err != nil {
		return nil, errors.Join(err, h.close())
	}
	format := wire.NewFormat(wire.Binding{Prefix: "ce_"})
	for i := range sample {
		h.raw.messages = append(h.raw.messages, &client.ProducerMessage{
			Payload: sample[i].Payload, Key: sample[i].RoutingKey, Properties: format.Properties(nil, &sample[i]), EventTime: sample[i].OccurredAt,
		})
	}
	return h, nil
}

// pulsarHand publishes by Pulsar's client.
type pulsarHand struct {
	raw             *raw
	batched, single client.Producer
}

func (h *pulsarHand) flood(ctx context.Context, n int) error {
	_, err := h.raw.flood(ctx, h.batched, n)
	return err
}

func (h *pulsarHand) send(ctx context.Context, i int) error {
	_, err := h.single.Send(ctx, h.raw.messages[i])
	return err
}

func (h *pulsarHand) close() error {
	for _, p := range []client.Producer{h.batched, h.single} {
		if p != nil {
			p.Close()
		}
	}
	return nil
}
