package messagingtest

import (
	"context"
	"errors"
	"io"

	"github.com/oncebox/oncebox/messaging"
)

type receive = func(ctx context.Context, r *receiver) (*messaging.Message, error)

// instead has Receive return another error than the right one.
func instead(of, err error) fault {
	return fault{receive: func(ctx context.Context, r *receiver) (*messaging.Message, error) {
		m, got := r.next(ctx)
		if errors.Is(got, of) {
			got = err
		}
		return m, got
	}}
}

// settlesAtOnce takes what was received for settled.
func settlesAtOnce(ctx context.Context, r *receiver) (*messaging.Message, error) {
	m, err := r.next(ctx)
	if err == nil {
		err = r.settle(ctx, m)
	}
	return m, err
}

// settlesAtTheEnd is a mistake of a receiver: when it is closed, it settles all messages that were received.
func settlesAtTheEnd(r *receiver) error {
	r.settleAll()
	return r.Receiver.Close()
}

func brokenReceivers() map[string][]broken {
	deaf := func(ctx context.Context, r *receiver) (*messaging.Message, error) {
		return r.next(context.WithoutCancel(ctx))
	}
	return map[string][]broken{
		"receive ends with its context": {
			{name: "deaf to its context", says: "Receive does not end", fault: fault{receive: deaf}},
			{name: "another error", says: "in err chain", fault: instead(context.Canceled, errBroken)},
			{
				name: "dead after it", says: messaging.ErrClosed.Error(),
				fault: fault{receive: func(ctx context.Context, r *receiver) (*messaging.Message, error) {
					m, err := r.next(ctx)
					if ctx.Err() != nil {
						_ = r.Receiver.Close() // memory's cannot fail
					}
					return m, err
				}},
			},
			{name: "a message gets lost in it", says: "deadline exceeded", fault: fault{receive: losesAfter(context.Canceled)}},
		},
		"message of another receiver": {
			{name: "settles something", says: "ack takes a message of another receiver", fault: fault{
				ack: func(ctx context.Context, r *receiver, m *messaging.Message) error {
					_ = r.settle(ctx, m)
					return nil
				},
			}},
			{name: "gives something back", says: "redeliver takes a message of another receiver", fault: fault{
				redeliver: func(ctx context.Context, r *receiver, m *messaging.Message) error {
					_ = r.Receiver.Redeliver(ctx, m)
					return nil
				},
			}},
		},
		"redeliver": brokenRedeliver(),
		"redelivered before later ones": {
			{name: "puts it at the end", says: "overtook", fault: fault{redeliver: keepForLater, receive: laterOnesFirst}},
		},
		"pause": {
			{name: "goes on", says: "a paused receiver received", fault: fault{pause: func(*receiver) {}}},
			{name: "for ever", says: "receive after a pause", fault: fault{resume: func(*receiver) {}}},
			{name: "takes Pause for Close", says: "in err chain", fault: fault{pause: func(r *receiver) { _ = r.Receiver.Close() }}},
		},
	}
}

// losesAfter drops the message that comes after such an error.
func losesAfter(end error) receive {
	return func(ctx context.Context, r *receiver) (*messaging.Message, error) {
		r.mu.Lock()
		lost := r.gone > 0
		r.mu.Unlock()
		m, err := r.next(ctx)
		if err == nil && lost {
			m, err = r.next(ctx)
		}
		if errors.Is(err, end) {
			r.mu.Lock()
			r.gone++
			r.mu.Unlock()
		}
		return m, err
	}
}

func brokenRedeliver() []broken {
	return []broken{
		{name: "does nothing", says: "deadline exceeded", fault: fault{
			redeliver: func(context.Context, *receiver, *messaging.Message) error { return nil },
		}},
		{name: "settles", says: "deadline exceeded", fault: fault{
			redeliver: func(ctx context.Context, r *receiver, m *messaging.Message) error { return r.settle(ctx, m) },
		}},
		{name: "only once", says: "deadline exceeded", fault: fault{
			redeliver: func(ctx context.Context, r *receiver, m *messaging.Message) error {
				if m.Attempt > 1 {
					return nil
				}
				return r.Receiver.Redeliver(ctx, m)
			},
		}},
		{name: "also what is settled", says: "a settled message came again", fault: fault{
			ack: func(ctx context.Context, r *receiver, m *messaging.Message) error {
				return errors.Join(r.settle(ctx, m), r.a.memory.Redeliver(r.subscription.Name, m.Topic, m.ID))
			},
		}},
		{name: "twice what is given back twice", says: "given back twice", fault: fault{
			redeliver: func(ctx context.Context, r *receiver, m *messaging.Message) error {
				err := r.Receiver.Redeliver(ctx, m)
				if r.late = append(r.late, m); len(r.late) == 3 { // the second call for the same delivery
					err = errors.Join(err, r.a.memory.Redeliver(r.subscription.Name, m.Topic, m.ID))
				}
				return err
			},
		}},
		{name: "what is settled when asked", says: "a settled message came again", fault: fault{
			redeliver: func(ctx context.Context, r *receiver, m *messaging.Message) error {
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.held[m.ID] == nil {
					return r.a.memory.Redeliver(r.subscription.Name, m.Topic, m.ID)
				}
				return r.Receiver.Redeliver(ctx, m)
			},
		}},
	}
}

// keepForLater keeps the message until laterOnesFirst has handed out another one.
func keepForLater(_ context.Context, r *receiver, m *messaging.Message) error {
	r.late = append(r.late, m)
	return nil
}

func laterOnesFirst(ctx context.Context, r *receiver) (*messaging.Message, error) {
	if len(r.late) > 0 && r.gone > 0 {
		m := r.late[0]
		r.late = r.late[1:]
		return m, nil
	}
	if len(r.late) > 0 {
		r.gone++
	}
	return r.next(ctx)
}

func brokenEnds() map[string][]broken {
	return map[string][]broken{
		"receive ends with close": {
			{name: "goes on", says: "in err chain", fault: fault{leave: func(*receiver) error { return nil }}},
			{name: "another error", says: "in err chain", fault: instead(messaging.ErrClosed, io.EOF)},
			{name: "not twice", says: "close a receiver", fault: fault{leave: onlyOnce(func(*receiver) error { return errBroken })}},
			{name: "takes an ack", says: "ack", fault: fault{ack: func(ctx context.Context, r *receiver, m *messaging.Message) error {
				_ = r.settle(ctx, m)
				return nil
			}}},
			{
				name: "takes something back", says: "redeliver",
				fault: fault{redeliver: func(context.Context, *receiver, *messaging.Message) error { return nil }},
			},
		},
		"broker closes":            brokenClose(),
		"broker closes while used": brokenCloseWhileUsed(),
		"closed by many at once": {
			{name: "the second one waits for ever", says: "Close of a receiver by several at once does not end", fault: fault{
				leave: onlyOnce(func(r *receiver) error {
					r.a.hang()
					return nil
				}),
			}},
			{name: "the second one fails", says: errBroken.Error(), fault: fault{leave: onlyOnce(func(*receiver) error { return errBroken })}},
			{
				name: "Receive waits for ever", says: "Receive of a receiver that was closed does not end",
				fault: fault{receive: hangsAfter(messaging.ErrClosed)},
			},
			{name: "Receive fails", says: "in err chain", fault: instead(messaging.ErrClosed, io.EOF)},
			{name: "the broker fails", says: errBroken.Error(), fault: fault{close: brokerOnce(errBroken)}},
		},
	}
}

// onlyOnce closes a receiver, and does something else from the second time on.
func onlyOnce(again func(r *receiver) error) func(r *receiver) error {
	return func(r *receiver) error {
		r.mu.Lock()
		r.gone++
		first := r.gone == 1
		r.mu.Unlock()
		if first {
			return r.Receiver.Close()
		}
		return again(r)
	}
}

// brokerOnce fails from the second time on.
func brokerOnce(err error) func(a *adapter) error {
	return func(a *adapter) error {
		again := err
		a.once.Do(func() { again = a.memory.Close() })
		return again
	}
}

// hangsAfter hangs where it should return that error.
func hangsAfter(end error) receive {
	return func(ctx context.Context, r *receiver) (*messaging.Message, error) {
		m, err := r.next(ctx)
		if errors.Is(err, end) {
			r.a.hang()
		}
		return m, err
	}
}
