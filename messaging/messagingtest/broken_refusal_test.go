package messagingtest

import (
	"context"
	"errors"
	"maps"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

// whenRefused changes the answer to a call if something of it was refused.
func whenRefused(change func(ctx context.Context, a *adapter, msgs []event.Envelope, failed map[int]error) error) fault {
	return fault{publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
		err := a.memory.Publish(ctx, msgs)
		partial, ok := errors.AsType[*messaging.PublishError](err)
		if !ok {
			return err
		}
		return change(ctx, a, msgs, maps.Clone(partial.Failed))
	}}
}

// classes replaces the reasons.
func classes(change func(err error) error) fault {
	return whenRefused(func(_ context.Context, _ *adapter, _ []event.Envelope, failed map[int]error) error {
		for i := range failed {
			failed[i] = change(failed[i])
		}
		return &messaging.PublishError{Failed: failed}
	})
}

// storesBehind stores the messages behind a refused one and returns the result of answer for them.
func storesBehind(answer func(failed map[int]error, i int)) fault {
	return whenRefused(func(ctx context.Context, a *adapter, msgs []event.Envelope, failed map[int]error) error {
		for i := range msgs {
			if errors.Is(failed[i], messaging.ErrBehind) {
				if err := a.memory.Publish(ctx, msgs[i:i+1]); err != nil {
					return err
				}
				answer(failed, i)
			}
		}
		return &messaging.PublishError{Failed: failed}
	})
}

func brokenRefusals() map[string][]broken {
	behind := func(failed map[int]error, i int) { delete(failed, i) }
	silently := func(map[int]error, int) {}
	return map[string][]broken{
		"refused message": {
			{name: "goes on behind it", says: "elements differ", fault: storesBehind(behind)},
			{name: "goes on behind it, in secret", says: "not the messages that were sent", fault: storesBehind(silently)},
			{name: "confirms what is behind it", says: "elements differ", fault: whenRefused(
				func(_ context.Context, _ *adapter, _ []event.Envelope, failed map[int]error) error {
					maps.DeleteFunc(failed, func(_ int, err error) bool { return errors.Is(err, messaging.ErrBehind) })
					return &messaging.PublishError{Failed: failed}
				})},
			{name: "stops at it", says: "elements differ", fault: stopsAtFirst()},
			{name: "fails the call", says: "Should be in error chain", fault: whenRefused(
				func(_ context.Context, _ *adapter, _ []event.Envelope, failed map[int]error) error { return errBroken })},
			{name: "takes it for a passing trouble", says: "too large", fault: classes(func(err error) error {
				if messaging.IsPermanent(err) {
					return errBroken
				}
				return err
			})},
			{name: "takes what is behind it for refused", says: "in err chain", fault: classes(func(error) error { return messaging.Permanent(errBroken) })},
			{name: "confirms it", says: "An error is expected", fault: whenRefused(
				func(context.Context, *adapter, []event.Envelope, map[int]error) error { return nil })},
		},
		"refused message without key": {
			{name: "takes no key for a key", says: "elements differ", fault: stopsAtFirst()},
			{name: "takes it for a passing trouble", says: "too large", fault: classes(func(error) error { return errBroken })},
		},
		"resend after a refusal": {
			{name: "goes on behind it, in secret", says: "out of order", fault: storesBehind(silently)},
			{name: "leaves the key blocked", says: messaging.ErrBehind.Error(), fault: staysBlocked()},
			{name: "remembers what it refused", says: "deadline exceeded", fault: forgetsResent()},
		},
	}
}

// stopsAtFirst stores nothing behind the first refused message, whatever its key.
func stopsAtFirst() fault {
	return fault{publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
		failed := map[int]error{}
		for i := range msgs {
			if len(failed) > 0 {
				failed[i] = messaging.ErrBehind
				continue
			}
			if err := a.memory.Publish(ctx, msgs[i:i+1]); err != nil {
				failed[i] = errors.Unwrap(err)
				if partial, ok := errors.AsType[*messaging.PublishError](err); ok {
					failed[i] = partial.Failed[0]
				}
			}
		}
		if len(failed) == 0 {
			return nil
		}
		return &messaging.PublishError{Failed: failed}
	}}
}

// staysBlocked takes nothing more of a key once something of it was refused.
func staysBlocked() fault {
	return fault{publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
		for _, e := range msgs {
			for _, refused := range a.kept {
				if e.RoutingKey == refused.RoutingKey {
					return allFailed(msgs, messaging.ErrBehind)
				}
			}
		}
		err := a.memory.Publish(ctx, msgs)
		if partial, ok := errors.AsType[*messaging.PublishError](err); ok {
			for i := range partial.Failed {
				a.kept = append(a.kept, msgs[i])
			}
		}
		return err
	}}
}

// forgetsResent confirms, and does not store, what was refused before.
func forgetsResent() fault {
	return fault{publish: func(ctx context.Context, a *adapter, msgs []event.Envelope) error {
		var rest []event.Envelope
		for _, e := range msgs {
			known := false
			for _, refused := range a.kept {
				known = known || e.ID == refused.ID
			}
			if !known {
				rest = append(rest, e)
			}
		}
		err := a.memory.Publish(ctx, rest)
		if partial, ok := errors.AsType[*messaging.PublishError](err); ok {
			for i := range partial.Failed {
				a.kept = append(a.kept, rest[i])
			}
		}
		return err
	}}
}
