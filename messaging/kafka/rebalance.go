package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/oncebox/oncebox/messaging/kafka/internal/topics"
)

// The client calls these functions one at a time. Partitions come and go cooperatively: only partitions that move are taken away, and the receiver
// goes on with the others meanwhile. A partition is with the next consumer only after revoked has returned. So a message is not delivered there while it
// is still in work here, unless that takes longer than Config.HandoverTimeout.

// assigned is called with partitions that the receiver gets, before their first message is fetched.
func (r *receiver) assigned(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range partitions[r.full] {
		if a := r.accounts[p]; a != nil {
			r.forget(p, a)
		}
		r.accounts[p] = newAccount()
	}
	r.links.joined()
	r.change()
}

// offsets is called with the committed offsets of partitions that were assigned, and with the owner of the subscription in their metadata.
func (r *receiver) offsets(_ context.Context, _ *kgo.Client, found *kmsg.OffsetFetchResponse) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, group := range found.Groups {
		for _, t := range group.Topics {
			for _, p := range t.Partitions {
				var is topics.Owner
				if p.Metadata != nil {
					is = topics.ParseOwner(*p.Metadata)
				}
				r.owner = r.owner.Or(is)
				if a := r.accounts[p.Partition]; a != nil && p.Offset >= 0 {
					a.next, a.epoch = p.Offset, p.LeaderEpoch
					if is == r.owner {
						a.committed = p.Offset
					}
				}
			}
		}
	}
	select {
	case r.markSoon <- struct{}{}:
	default: // it is to be marked already
	}
	return nil
}

// revoked is called with partitions that move to another consumer. It waits until their messages in work are settled, and commits.
func (r *receiver) revoked(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	moving := map[int32]*account{}
	r.mu.Lock()
	for _, p := range partitions[r.full] {
		if a := r.accounts[p]; a != nil {
			a.ending = true
			moving[p] = a
		}
	}
	r.queue = without(r.queue, moving)
	leaving := r.leaving
	r.mu.Unlock()
	if len(moving) == 0 {
		return
	}
	if !leaving { // Close has committed
		r.interrupt() // what was polled before belongs to the receiver, or is dropped
		r.awaitSettled(moving)
		limit, cancel := context.WithTimeout(context.Background(), r.broker.cfg.OperationTimeout)
		defer cancel()
		if err := r.commit(limit, moving); err != nil {
			r.broker.log.Info("oncebox: the offsets of partitions that move to another consumer were not committed; the messages that were settled last come "+
				"again", "topic", r.full, "group", r.group, "error", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, a := range moving {
		r.forget(p, a)
	}
}

// lost is called with partitions that the broker has given to others already, because this consumer was silent for Config.SessionTimeout.
func (r *receiver) lost(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	r.interrupt() // what was polled before is in the queue now, and goes with its account
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range partitions[r.full] {
		if a := r.accounts[p]; a != nil {
			r.forget(p, a)
		}
	}
	r.change()
}

// without returns the deliveries of a queue that do not belong to these accounts.
func without(queue []*delivery, accounts map[int32]*account) (rest []*delivery) {
	for _, d := range queue {
		if accounts[d.record.Partition] != d.account {
			rest = append(rest, d)
		}
	}
	return rest
}

// awaitSettled waits until the caller of Receive has settled the messages of these accounts, for Config.HandoverTimeout at most.
func (r *receiver) awaitSettled(accounts map[int32]*account) {
	timer := time.NewTimer(r.broker.cfg.HandoverTimeout)
	defer timer.Stop()
	for {
		r.mu.Lock()
		inHand, leaving, changed := 0, r.leaving, r.changed
		for _, a := range accounts {
			inHand += a.inHand
		}
		r.mu.Unlock()
		if inHand == 0 || leaving {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			r.broker.log.Info("oncebox: partitions move to another consumer although messages of them are in work here; these messages come again there",
				"topic", r.full, "group", r.group, "messages", inHand, "waited", r.broker.cfg.HandoverTimeout)
			return
		}
	}
}
