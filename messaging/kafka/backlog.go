package kafka

import (
	"context"

	"github.com/oncebox/oncebox/messaging"
)

// Backlog implements [messaging.BacklogReceiver].
func (r *receiver) Backlog(ctx context.Context) (messaging.Backlog, error) {
	out := messaging.Backlog{Topic: r.subscription.Topic}
	parts, err := r.broker.keeper.Lag(ctx, r.subscription)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.leaving:
		return out, messaging.ErrClosed
	case err != nil:
		return out, err
	}
	out.Settled = r.settled
	for p, part := range parts.Lag[r.full] {
		out.Settled += max(part.Commit.At, 0)
		a := r.accounts[p]
		switch {
		case a != nil && a.next >= 0: // its account is ahead of the committed offset
			out.Messages += max(part.End.Offset-a.next, 0) + int64(len(a.open)-len(a.left))
			out.Left += int64(len(a.left))
		case a != nil || part.Member == nil:
			out.Messages += max(part.Lag, 0)
		}
	}
	return out, nil
}

// Leave implements [messaging.BacklogReceiver]. The offset of the partition stays below the message, so it comes again, with all later ones, when
// the partition is assigned the next time.
func (r *receiver) Leave(m *messaging.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, err := r.release(m, "leave")
	if d == nil || err != nil {
		return // it comes again anyway
	}
	if d.account.isOpen(d.record.Offset) {
		d.account.left[d.record.Offset] = struct{}{}
	}
}
