package kafka

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
)

// poll is one call of the client for messages. done is closed when they are in the queue.
type poll struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// fetch asks the client for messages and puts them into the queue. It returns early, without an error, when it is interrupted.
func (r *receiver) fetch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &poll{cancel, make(chan struct{})}
	defer close(p.done)
	r.mu.Lock()
	if r.leaving || r.paused || len(r.queue) > 0 { // since take
		r.mu.Unlock()
		return nil
	}
	r.poll = p
	r.mu.Unlock()
	fetches := r.client.PollRecords(ctx, r.subscription.Queue)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.poll = nil
	fetches.EachPartition(r.add)
	return r.fault(fetches)
}

// interrupt ends the poll that is under way and waits until its messages are in the queue.
func (r *receiver) interrupt() {
	r.mu.Lock()
	p := r.poll
	r.mu.Unlock()
	if p != nil {
		p.cancel()
		<-p.done
	}
}

// add puts the messages of a partition into the queue. The caller holds the mutex.
func (r *receiver) add(p kgo.FetchTopicPartition) {
	a := r.accounts[p.Partition]
	if a == nil || a.ending || len(p.Records) == 0 {
		return // it belongs to another consumer
	}
	if first := p.Records[0].Offset; first < a.next {
		a = r.wentBack(p.Partition, a, first)
	} else if a.next >= 0 && a.next < p.LogStartOffset && first > a.next {
		r.broker.log.Error("oncebox: messages were deleted before they were consumed: the topic's retention is shorter than the time for which nobody "+
			"consumed (retention.ms, retention.bytes)", "topic", r.full, "partition", p.Partition, "group", r.group,
			"expected", a.next, "first", p.LogStartOffset, "deleted", min(first, p.LogStartOffset)-a.next)
	}
	for _, record := range p.Records {
		a.receive(record.Offset, record.LeaderEpoch)
		r.queue = append(r.queue, &delivery{receiver: r, account: a, record: record, attempt: 1})
	}
}

// wentBack begins a new account for a partition whose offsets are lower than they were: the broker has lost its end, or the topic was made anew.
func (r *receiver) wentBack(partition int32, a *account, first int64) *account {
	r.broker.log.Warn("oncebox: the broker delivers a partition again from an earlier place: it has lost messages, or the topic was made anew",
		"topic", r.full, "partition", partition, "group", r.group, "expected", a.next, "first", first)
	r.forget(partition, a)
	fresh := newAccount()
	r.accounts[partition] = fresh
	return fresh
}

// forget ends an account. Its messages are not delivered, and not settled, any more. The caller holds the mutex.
func (r *receiver) forget(partition int32, a *account) {
	a.gone = true
	r.queue = slices.DeleteFunc(r.queue, func(d *delivery) bool { return d.account == a })
	if r.accounts[partition] == a {
		delete(r.accounts, partition)
	}
}

// fault returns the error that ends the receiver: the broker refuses the topic or the group. The client mends other faults by itself.
func (r *receiver) fault(fetches kgo.Fetches) error {
	for _, e := range fetches.Errors() {
		if errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, context.DeadlineExceeded) {
			continue // of Receive, or of interrupt
		}
		if errors.Is(e.Err, kgo.ErrClientClosed) {
			return messaging.ErrClosed
		}
		if trouble := r.broker.keeper.Trouble("receive from subscription "+strconv.Quote(r.subscription.Name), r.subscription, e.Err); trouble != nil {
			return trouble
		}
		if _, isGroup := errors.AsType[*kgo.ErrGroupSession](e.Err); isGroup {
			continue // it joins again, and has logged why
		}
		away := quietlog.Away(context.Background(), quietlog.Broker+" for a partition")
		r.broker.log.WarnContext(away, "oncebox: the client has a fault with a partition; it goes on if it can", "topic", r.full,
			"partition", e.Partition, "group", r.group, "error", e.Err)
	}
	return nil
}
