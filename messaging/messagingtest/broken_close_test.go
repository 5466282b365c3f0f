package messagingtest

import (
	"context"
	"errors"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// whenDown changes the answer of Publish after the end.
func whenDown(answer func(a *adapter) error) fault {
	return fault{publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
		err := a.memory.Publish(ctx, msgs)
		if errors.Is(err, messaging.ErrBrokerDown) {
			return answer(a)
		}
		return err
	}}
}

func brokenClose() []broken {
	return []broken{
		{name: "Publish confirms", says: "costs no message an attempt", fault: whenDown(func(*adapter) error { return nil })},
		{name: "Publish blames the messages", says: "costs no message an attempt", fault: whenDown(func(*adapter) error { return errBroken })},
		{name: "Receive goes on", says: "in err chain", fault: fault{close: func(*adapter) error { return nil }}},
		{name: "Subscribe works", says: "subscribe after the broker's end", fault: fault{
			subscribe: func(ctx context.Context, a *adapter, s messaging.Subscription) (messaging.Receiver, error) {
				r, err := a.join(ctx, s)
				if errors.Is(err, messaging.ErrBrokerDown) {
					return &receiver{}, nil
				}
				return r, err
			},
		}},
		{name: "not twice", says: "close the broker", fault: fault{close: brokerOnce(errBroken)}},
	}
}

func brokenCloseWhileUsed() []broken {
	return []broken{
		{name: "Close waits for ever", says: "Close of the broker does not end", fault: fault{close: func(a *adapter) error {
			err := a.memory.Close()
			a.hang()
			return err
		}}},
		{
			name: "Publish waits for ever", says: "what was under way when the broker was closed does not end",
			fault: whenDown(func(a *adapter) error {
				a.hang()
				return messaging.ErrBrokerDown
			}),
		},
		{name: "Receive waits for ever", says: "what was under way when the broker was closed does not end", fault: fault{
			receive: hangsAfter(messaging.ErrClosed),
		}},
	}
}
