package recipes

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/delayed"
	"github.com/oncebox/oncebox/uow"
)

// WalletForgotten is announced thirty days after the last deposit.
type WalletForgotten struct{ Wallet string }

// EventType names the event on the wire.
func (WalletForgotten) EventType() string { return "wallet.forgotten" }

// Remind announces WalletForgotten in thirty days, and cancels the reminder that was set before. It belongs to the unit of a deposit: if
// that is rolled back, the former reminder stays.
func Remind(ctx context.Context, u *uow.Unit, events *outbox.Store, wallet string) error {
	var former string
	err := u.DB().NewRaw("SELECT event_id FROM reminders WHERE wallet = ? FOR UPDATE", wallet).Scan(ctx, &former)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if former != "" {
		if err := events.Delayed().Cancel(ctx, u.DB(), former); err != nil && !errors.Is(err, delayed.ErrTooLate) { // too late: it is on its way
			return err
		}
	}
	id, err := u.Schedule("reminder", WalletForgotten{wallet}, event.WithDelay(30*24*time.Hour))
	if err != nil {
		return err
	}
	_, err = u.DB().NewRaw(`INSERT INTO reminders VALUES (?0, ?1) ON CONFLICT (wallet) DO UPDATE SET event_id = ?1`, wallet, id).Exec(ctx)
	return err
}
