package messagingtest

import (
	"context"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// brokenServers are adapters that do not endure that their server is killed.
func brokenServers() map[string][]broken {
	fails := func(with func(msgs []event.Envelope) error) fault {
		return fault{away: func(_ context.Context, _ *adapter, msgs []event.Envelope) error { return with(msgs) }}
	}
	return map[string][]broken{"server is killed": {
		{name: "receivers die", says: messaging.ErrClosed.Error(), fault: fault{kill: func(a *adapter) {
			for _, r := range a.all() {
				_ = r.Receiver.Close() // memory's cannot fail
			}
		}}},
		{name: "blames the messages", says: "counts as the message's fault", fault: fails(func(msgs []event.Envelope) error {
			return allFailed(msgs, messaging.Permanent(errBroken))
		})},
		{name: "makes it cost an attempt", says: "counts as the message's fault", fault: fails(func(msgs []event.Envelope) error {
			return allFailed(msgs, errBroken)
		})},
		{name: "leaves holes", says: "behind a message that is not", fault: fails(func(msgs []event.Envelope) error {
			return allFailed(msgs[1:], messaging.ErrBrokerDown)
		})},
		{name: "confirms what is lost", says: "deadline exceeded", fault: fails(func([]event.Envelope) error { return nil })},
		{name: "does not know that nobody answers", says: "no call says that the broker is down", fault: fails(func(msgs []event.Envelope) error {
			return allFailed(msgs, messaging.ErrUnknown)
		})},
		{name: "Publish hangs", says: "Publish does not end", fault: fault{away: func(_ context.Context, a *adapter, _ []event.Envelope) error {
			a.hang()
			return errBroken
		}}},
		{name: "comes back without order", says: "out of order", fault: fault{
			kill: func(a *adapter) {
				a.wasCut.Store(true)
				a.memory.Disconnect()
			},
			publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
				if a.wasCut.Load() {
					return withoutOrder(ctx, a, msgs)
				}
				return a.memory.Publish(ctx, msgs)
			},
		}},
	}}
}
