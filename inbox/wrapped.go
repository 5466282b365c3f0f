package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// wrapped is what [Inbox.Wrap] returns.
type wrapped struct {
	*Inbox

	consumer string
	next     messaging.Handler
}

// errNoID never happens with a working adapter: the broker has an id for every message.
var errNoID = messaging.Permanent(errors.New("inbox: the message has no id: the broker's adapter must give it one"))

// Handle enters m, and calls the handler if it was not there.
func (w *wrapped) Handle(ctx context.Context, m *messaging.Message) error {
	if m.ID == "" {
		return errNoID
	}
	if in, ok := messaging.FromContext(ctx); !ok || in != m {
		ctx = messaging.NewContext(ctx, m)
	}
	if err := validate(m); err != nil {
		return w.bury(ctx, identifyInvalid(w.consumer, m), m, err)
	}
	id := identify(w.consumer, m)
	var fresh bool
	err := w.units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
		if fresh, err = w.claim(ctx, u.DB(), id); err != nil || !fresh {
			return err
		}
		return w.next.Handle(ctx, m)
	}, readCommitted())
	switch {
	case err != nil && hopeless(err):
		return w.bury(ctx, id, m, err)
	case err != nil:
		w.count(ctx, w.consumer, "failed")
		return err
	case fresh:
		w.count(ctx, w.consumer, "handled")
	default:
		w.count(ctx, w.consumer, "duplicate")
	}
	return nil
}

// What the lock and the index do for order and deduplication rests on it, whatever the server's default is.
func readCommitted() uow.Option { return uow.WithIsolation(sql.LevelReadCommitted) }

// hopeless tells whether trying again, with this build of the program, leads nowhere.
func hopeless(err error) bool {
	var decode *event.DecodeError
	return messaging.IsPermanent(err) || errors.As(err, &decode) ||
		errors.Is(err, event.ErrUnknownType) || errors.Is(err, messaging.ErrNoHandler)
}

// bury makes a dead letter of m in a transaction of its own: what the handler did is rolled back. Afterwards m is
// settled, and its copies are duplicates. nil without a dead letter if another process was faster and has settled it.
func (w *wrapped) bury(ctx context.Context, id identity, m *messaging.Message, cause error) error {
	var fresh bool
	err := w.units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
		if fresh, err = w.claim(ctx, u.DB(), id); err != nil || !fresh {
			return err
		}
		return w.storeDead(ctx, u.DB(), id, m, cause)
	}, readCommitted())
	if err != nil {
		w.count(ctx, w.consumer, "failed")
		// The cause is permanent; that it could not be written down is not.
		return fmt.Errorf("inbox: make a dead letter of message %q, which failed with %q: %w", m.ID, cause.Error(), err)
	}
	if !fresh {
		w.count(ctx, w.consumer, "duplicate")
		return nil
	}
	w.count(ctx, w.consumer, "dead")
	w.log.ErrorContext(ctx, "oncebox: message given up, it is a dead letter now", "consumer", w.consumer,
		"topic", m.Topic, "type", m.Type, "id", m.ID, "message_key", id.key.String(), "error", cause)
	return nil
}
