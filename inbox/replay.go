package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// Replay handles a dead letter after all: next runs in a unit that removes the dead letter, so it happens once. When
// next fails the dead letter stays, and the error is returned. [ErrNotDead] if there is none.
//
// next is the consumer's handler; it may be given as it is or wrapped. The order of its key is the caller's to judge:
// later messages of the key may have been handled since.
func (i *Inbox) Replay(ctx context.Context, key DeadKey, next messaging.Handler) error {
	if w, ok := next.(*wrapped); ok {
		// It would find the entry and take the dead letter for a duplicate.
		next = w.next
	}
	messageKey, err := uuid.Parse(key.MessageKey)
	if err != nil {
		return fmt.Errorf("inbox: replay: DeadKey.MessageKey %q is not a UUID: %w", key.MessageKey, err)
	}
	args := []any{messageKey.String(), key.Consumer, key.TenantID, key.Source}
	err = i.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		// Whoever replays it at the same time waits here, and then finds nothing.
		rows, err := i.sql.Query(ctx, u.DB(), takeDead, args...)
		if err != nil {
			return pgsql.Explain(err)
		}
		d, err := oneDead(rows)
		if err != nil {
			return err
		}
		m := messaging.NewMessage(d.Envelope, d.Attempts+1, nil)
		id := identify(key.Consumer, m)
		id.key, id.tenant, id.source = messageKey, key.TenantID, key.Source
		// For the lock, and for an entry that has expired since.
		if _, err := i.claim(ctx, u.DB(), id); err != nil {
			return err
		}
		if _, err := i.sql.Exec(ctx, u.DB(), deleteDead, args...); err != nil {
			return err
		}
		return next.Handle(messaging.NewContext(ctx, m), m)
	}, readCommitted())
	if err != nil {
		return fmt.Errorf("inbox: replay %s of consumer %s: %w", key.MessageKey, key.Consumer, err)
	}
	return nil
}

func oneDead(rows *sql.Rows) (Dead, error) {
	defer rows.Close()
	if !rows.Next() {
		return Dead{}, errors.Join(rows.Err(), ErrNotDead)
	}
	d, err := scanDead(rows.Scan)
	return d, errors.Join(err, rows.Close())
}
