package messagingtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

type publish = func(ctx context.Context, a *adapter, msgs []event.Envelope) error

// withoutOrder stores the messages of each call from behind.
func withoutOrder(ctx context.Context, a *adapter, msgs []event.Envelope) error {
	turned := slices.Clone(msgs)
	slices.Reverse(turned)
	return a.memory.Publish(ctx, turned)
}

func allFailed(msgs []event.Envelope, err error) error {
	failed := map[int]error{}
	for i := range msgs {
		failed[i] = err
	}
	return &messaging.PublishError{Failed: failed}
}

// whenOver does something else with calls whose context is done.
func whenOver(other publish) fault {
	return fault{publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
		if ctx.Err() != nil {
			return other(context.WithoutCancel(ctx), a, msgs)
		}
		return a.memory.Publish(ctx, msgs)
	}}
}

// beside does something else with calls that come while another one is under way.
func beside(other publish) fault {
	return fault{publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
		if !a.busy.TryLock() {
			return other(ctx, a, msgs)
		}
		defer a.busy.Unlock()
		<-time.After(2 * time.Millisecond) // long enough to meet others
		return a.memory.Publish(ctx, msgs)
	}}
}

func brokenPublishers() map[string][]broken {
	return map[string][]broken{
		"nothing to publish": {
			{name: "wants something", says: errBroken.Error(), fault: fault{publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
				if len(msgs) == 0 {
					return errBroken
				}
				return a.memory.Publish(ctx, msgs)
			}}},
		},
		"context is done": {
			{
				name: "confirms", says: "nothing can be confirmed any more",
				fault: whenOver(func(context.Context, *adapter, []event.Envelope) error { return nil }),
			},
			{name: "blames the messages", says: "is not the message's fault", fault: whenOver(func(_ context.Context, _ *adapter, msgs []event.Envelope) error {
				return allFailed(msgs, messaging.Permanent(errBroken))
			})},
			{name: "names one of two", says: "should have 2 item(s)", fault: whenOver(func(_ context.Context, _ *adapter, msgs []event.Envelope) error {
				return allFailed(msgs[:1], messaging.ErrUnknown)
			})},
			{name: "waits on", says: "Publish does not end", fault: whenOver(func(_ context.Context, a *adapter, _ []event.Envelope) error {
				a.hang()
				return errBroken
			})},
		},
		"concurrent calls": {
			{
				name: "one caller only", says: "a call beside others",
				fault: beside(func(context.Context, *adapter, []event.Envelope) error { return errBroken }),
			},
			{
				name: "loses what comes at the same time", says: "deadline exceeded",
				fault: beside(func(context.Context, *adapter, []event.Envelope) error {
					return nil
				}),
			},
			{name: "mixes what comes at the same time", says: "out of order", fault: beside(withoutOrder)},
		},
		"resend after a deadline":  brokenDeadlines(),
		"order per key":            brokenOrder(),
		"order of 1,000 keys":      brokenMultitude(),
		"order with two consumers": {{name: "the second one gets the newest first", says: "out of order", fault: fault{receive: newestFirst(1, 1)}}},
		"lost connection":          brokenConnections(),
	}
}

func brokenDeadlines() []broken {
	return []broken{
		{name: "confirms", says: "deadline exceeded", fault: whenOver(func(context.Context, *adapter, []event.Envelope) error { return nil })},
		{name: "leaves holes", says: "behind a message that is not", fault: whenOver(func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
			return allFailedBut(msgs, 7, a.memory.Publish(ctx, msgs[7:8]))
		})},
		{name: "is behind nothing", says: "behind nothing", fault: whenOver(func(_ context.Context, _ *adapter, msgs []event.Envelope) error {
			return allFailed(msgs, messaging.ErrBehind)
		})},
		{name: "fails without a reason", says: "without a reason", fault: whenOver(func(_ context.Context, _ *adapter, msgs []event.Envelope) error {
			return allFailed(msgs, nil)
		})},
		{name: "names others", says: "are of the call", fault: whenOver(func(_ context.Context, _ *adapter, msgs []event.Envelope) error {
			return &messaging.PublishError{Failed: map[int]error{len(msgs): messaging.ErrUnknown}}
		})},
		{name: "sends later, behind the back", says: "out of order", fault: fault{publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
			a.mu.Lock()
			late := a.kept
			a.kept = nil
			a.mu.Unlock()
			if ctx.Err() != nil {
				a.kept = msgs[len(msgs)-1:]
				return allFailed(msgs, messaging.ErrUnknown)
			}
			if err := a.memory.Publish(ctx, late); err != nil {
				return err
			}
			return a.memory.Publish(ctx, msgs)
		}}},
	}
}

// allFailedBut confirms one, which err says was stored.
func allFailedBut(msgs []event.Envelope, one int, err error) error {
	failed := map[int]error{}
	for i := range msgs {
		if i != one || err != nil {
			failed[i] = messaging.ErrUnknown
		}
	}
	return &messaging.PublishError{Failed: failed}
}

func brokenOrder() []broken {
	return []broken{
		{name: "turns each call around", says: "out of order", fault: fault{publish: withoutOrder}},
		{name: "hands out the newest first", says: "out of order", fault: fault{receive: newestFirst(0, 1)}},
		{
			name: "loses one in a hundred", says: "deadline exceeded",
			fault: fault{publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
				return a.memory.Publish(ctx, msgs[:len(msgs)-len(msgs)/100])
			}},
		},
		{name: "sends another one", says: "not the messages that were sent", fault: sends(func(e *event.Envelope) {
			if e.Sequence == 12 {
				e.ID += "-or-another"
			}
		})},
	}
}

// brokenMultitude has places for so many keys, and forgets the rest in one way or another.
func brokenMultitude() []broken {
	const places = 256
	split := func(msgs []event.Envelope) (known, others []event.Envelope) {
		for _, e := range msgs {
			var n int
			if _, err := fmt.Sscanf(e.RoutingKey, "key-%d", &n); err == nil && n < places {
				known = append(known, e)
			} else {
				others = append(others, e)
			}
		}
		return known, others
	}
	return []broken{
		{
			name: "no order of the keys above 256", says: "out of order",
			fault: fault{publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
				known, others := split(msgs)
				if err := a.memory.Publish(ctx, known); err != nil {
					return err
				}
				return withoutOrder(ctx, a, others)
			}},
		},
		{name: "no room for the keys above 256", says: "deadline exceeded", fault: fault{
			publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
				known, _ := split(msgs)
				return a.memory.Publish(ctx, known)
			},
		}},
	}
}

// newestFirst has the receiver of that number hold its first message, if it comes for that time, back until there is a
// later one of its key.
func newestFirst(number, attempt int) func(ctx context.Context, r *receiver) (*messaging.Message, error) {
	return func(ctx context.Context, r *receiver) (*messaging.Message, error) {
		if len(r.late) == 2 { // the later one was handed out
			m := r.late[0]
			r.late = append(r.late, nil)
			return m, nil
		}
		for {
			m, err := r.next(ctx)
			switch {
			case err != nil || r.number != number || len(r.late) > 1:
				return m, err
			case len(r.late) == 0 && m.Attempt == attempt:
				r.late = append(r.late, m)
			case len(r.late) == 1 && m.RoutingKey == r.late[0].RoutingKey:
				r.late = append(r.late, m)
				return m, nil
			default:
				return m, nil
			}
		}
	}
}

func brokenConnections() []broken {
	// afterCut does something else with the first call after a cut.
	afterCut := func(other publish) fault {
		return fault{
			cut: func(a *adapter) {
				a.memory.Disconnect()
				a.wasCut.Store(true)
			},
			publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
				if a.wasCut.CompareAndSwap(true, false) {
					return other(ctx, a, msgs)
				}
				return a.memory.Publish(ctx, msgs)
			},
		}
	}
	return []broken{
		{name: "receivers die", says: messaging.ErrClosed.Error(), fault: fault{cut: func(a *adapter) {
			for _, r := range a.all() {
				_ = r.Receiver.Close() // memory's cannot fail
			}
		}}},
		{name: "what is held is lost", says: "deadline exceeded", fault: fault{cut: func(a *adapter) {
			for _, r := range a.all() {
				r.settleAll()
			}
		}}},
		{name: "keeps what is held, and cannot give it back", says: "redeliver", fault: fault{
			keeps: true, redeliver: func(context.Context, *receiver, *messaging.Message) error { return errBroken },
		}},
		{name: "loses what is given back", says: "deadline exceeded", fault: fault{
			keeps: true, redeliver: func(ctx context.Context, r *receiver, m *messaging.Message) error { return r.settle(ctx, m) },
		}},
		{name: "what is held stays held", says: "deadline exceeded", fault: fault{cut: func(*adapter) {}}},
		{name: "blames the messages", says: "counts as the message's fault", fault: afterCut(func(_ context.Context, _ *adapter, msgs []event.Envelope) error {
			return allFailed(msgs, messaging.Permanent(errBroken))
		})},
		{
			name: "makes it cost an attempt", says: "counts as the message's fault",
			fault: afterCut(func(_ context.Context, _ *adapter, msgs []event.Envelope) error {
				return allFailed(msgs, errBroken)
			}),
		},
		{
			name: "confirms what is lost", says: "deadline exceeded",
			fault: afterCut(func(context.Context, *adapter, []event.Envelope) error { return nil }),
		},
		{
			name: "Publish hangs", says: "Publish over a lost connection does not end",
			fault: afterCut(func(_ context.Context, a *adapter, _ []event.Envelope) error {
				a.hang()
				return errBroken
			}),
		},
		{name: "reconnects without order", says: "out of order", ordered: true, fault: afterCut(withoutOrder)},
	}
}
