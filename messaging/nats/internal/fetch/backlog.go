package fetch

import (
	"context"
	"fmt"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/nats/internal/streams"
)

// Backlog implements [messaging.BacklogReceiver]. With [messaging.Failover] it counts the partitions of this receiver, and partitions without a reader.
func (r *Receiver) Backlog(ctx context.Context) (messaging.Backlog, error) {
	if r.IsClosed() {
		return messaging.Backlog{}, messaging.ErrClosed
	}
	out := messaging.Backlog{Topic: r.subscription.Topic}
	for _, p := range r.partitions {
		info, err := p.info(ctx)
		if err != nil {
			return messaging.Backlog{}, fmt.Errorf("nats: backlog of consumer %s: %w", p.consumer, err)
		}
		out.Settled += streams.Settled(info)
		r.mu.Lock()
		ours, leftHere := p.spell != nil, 0
		if ours {
			leftHere = p.spell.left
		}
		r.mu.Unlock()
		if ours || !streams.IsRead(info) {
			out.Messages += streams.Waiting(info) - int64(leftHere)
			out.Left += int64(leftHere)
		}
	}
	return out, nil
}
