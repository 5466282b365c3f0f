package pulsar

import (
	"context"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/messaging"
)

// errNoAdmin is the error without the admin API, which alone reports backlogs.
var errNoAdmin = errors.New("pulsar: read the backlog: Pulsar's admin API cannot be reached; set Config.AdminURL (ONCEBOX_PULSAR_ADMIN_URL)")

// Backlog implements [messaging.BacklogReceiver] with the admin API. Messages counts entries: a batch is one.
func (r *receiver) Backlog(ctx context.Context) (messaging.Backlog, error) {
	b, topic := r.broker, r.subscription.Topic
	out := messaging.Backlog{Topic: topic}
	if r.IsClosed() {
		return out, messaging.ErrClosed
	}
	if !b.keeper.HasAdmin(ctx) {
		return out, errNoAdmin
	}
	parts, err := b.keeper.Admin.Backlogs(ctx, topic, r.subscription.Name)
	if err != nil {
		return out, fmt.Errorf("pulsar: backlog of subscription %q of topic %q: %w", r.subscription.Name, topic, err)
	}
	r.lookForPermits(parts)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, part := range parts {
		if r.subscription.Type == messaging.Failover && part.Active != "" && part.Active != r.name {
			continue // it belongs to another consumer, which may be slow or stuck
		}
		n := min(r.left.in(part.Partition), part.Waiting)
		out.Messages += part.Waiting - n
		out.Left += n
		out.Settled = max(out.Settled, part.LastAcked, part.LastAdvanced)
	}
	return out, nil
}

// leftPatience bounds how often a silent receiver asks for partitions with left messages. It asks for its other partitions this many times first,
// which takes more than a minute. Each request brings the left messages again, together with messages that the broker may have lost.
const leftPatience = 4

// entryOf identifies an entry of the broker: a stored message, or a stored batch of messages.
type entryOf struct {
	partition     int32
	ledger, entry int64
}

// left holds the messages that the consumer left at the broker, by entry and by their place in it. The entries are needed because the broker's
// backlog counts entries and not messages.
type left map[entryOf]map[int32]struct{}

// entry returns the entry that holds the message, and the message's place in it.
func (rc *receipt) entry() (e entryOf, place int32) {
	id := rc.message.ID()
	return entryOf{id.PartitionIdx(), id.LedgerID(), id.EntryID()}, id.BatchIdx()
}

// add and remove work by the place within the entry, because a batch counts as left until all of its
// messages are settled.
func (l left) add(rc *receipt) {
	e, place := rc.entry()
	if l[e] == nil {
		l[e] = map[int32]struct{}{}
	}
	l[e][place] = struct{}{}
}

func (l left) remove(rc *receipt) {
	if len(l) == 0 {
		return
	}
	e, place := rc.entry()
	delete(l[e], place)
	if len(l[e]) == 0 {
		delete(l, e)
	}
}

// drop forgets a partition that has moved to another receiver.
func (l left) drop(partition int32) {
	for e := range l {
		if e.partition == partition {
			delete(l, e)
		}
	}
}

// in counts the entries of a partition.
func (l left) in(partition int32) (n int64) {
	for e := range l {
		if e.partition == partition {
			n++
		}
	}
	return n
}

// Leave implements [messaging.BacklogReceiver]. The message no longer counts as in hand, so that a partition that has stopped is still noticed.
func (r *receiver) Leave(m *messaging.Message) {
	rc, err := r.receipt(m, "pulsar: leave")
	if err != nil {
		return // an earlier consumer received it, so it comes again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.renewing || rc.consumer != r.consumer || rc.settled {
		return
	}
	rc.settled = true
	r.left.add(rc)
	r.silence.inHand[rc.message.ID().PartitionIdx()]--
	r.leak(rc.message)
}
