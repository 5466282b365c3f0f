package main

import (
	"context"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/examples/orders/kills"
	"github.com/oncebox/oncebox/examples/orders/shop"
)

// wire reads the partitions of the topic with Kafka's client, without a consumer group. It has no credentials, so the broker must let it in without.
type wire struct{ url string }

func watch(context.Context) (kills.Wire, error) { return wire{os.Getenv(variable)}, nil }

// Read implements kills.Wire.
func (w wire) Read(ctx context.Context) (messages []kills.Message, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(w.url, ",")...), kgo.ConsumeTopics(shop.OrderTopic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	left, err := partitions(ctx, client)
	if err != nil {
		return nil, err
	}
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			attributes := map[string]string{}
			for _, h := range r.Headers {
				if attribute, ok := strings.CutPrefix(h.Key, "ce_"); ok {
					attributes[attribute] = string(h.Value)
				}
			}
			messages = append(messages, kills.Message{Partition: int(r.Partition), Key: string(r.Key), Attributes: attributes, Payload: r.Value})
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return messages, nil
}

// partitions returns the ends of the partitions that are not empty.
func partitions(ctx context.Context, client *kgo.Client) (map[int32]int64, error) {
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, shop.OrderTopic)
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListEndOffsets(ctx, shop.OrderTopic)
	if err != nil {
		return nil, err
	}
	left := map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		if start, _ := starts.Lookup(end.Topic, end.Partition); start.Offset < end.Offset {
			left[end.Partition] = end.Offset
		}
	})
	return left, ends.Error()
}
