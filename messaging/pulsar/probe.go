package pulsar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	pulsarclient "github.com/apache/pulsar-client-go/pulsar"

	"github.com/oncebox/oncebox/messaging/pulsar/internal/answer"
)

// Probe opens a connection to the URL of cfg, looks a topic up, and connects to the broker that serves it, as a consumer would. So it also
// finds a network that lets only the first connection through. It makes nothing: with topic "" it only asks. The error names the step that
// failed. If the role may not read the topic, Probe returns nil, because the broker has answered.
func Probe(ctx context.Context, cfg *Config, topic string) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	c := *cfg
	c.Required, c.Topics, c.Subscriptions, c.AdminTimeout, c.Telemetry.Logger = true, nil, nil, 1, slog.New(slog.DiscardHandler)
	deadline, limited := ctx.Deadline()
	if limited {
		c.ConnectTimeout = time.Until(deadline)
		c.OperationTimeout = c.ConnectTimeout
		c.CloseTimeout = time.Second
	}
	b, err := Connect(ctx, &c)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }() // the result is known already
	if topic == "" {
		return nil
	}
	full := b.keeper.FullName(topic)
	partitions, err := b.client.TopicPartitions(full)
	if err != nil {
		return fmt.Errorf("pulsar: probe: look topic %s up: %w", full, err)
	}
	var background sync.WaitGroup
	reader, _, err := answer.Once(ctx, &background, func() (pulsarclient.Reader, error) {
		return b.client.CreateReader(pulsarclient.ReaderOptions{
			Topic: partitions[0], StartMessageID: pulsarclient.LatestMessageID(), SubscriptionName: "oncebox-probe", ReceiverQueueSize: 1,
		})
	}, pulsarclient.Reader.Close)
	switch {
	case err == nil:
		reader.Close()
		return nil
	case answer.IsTopicTrouble(err):
		return nil // the broker that serves it has answered
	case errors.Is(err, context.DeadlineExceeded):
		err = errors.New("no answer in time")
	}
	return fmt.Errorf("pulsar: probe: %s answers, but the broker that serves topic %s cannot be reached from here: check the advertised "+
		"addresses of the brokers and the network between: %w", redacted(c.URL), full, err)
}
