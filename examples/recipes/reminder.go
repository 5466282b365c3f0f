package recipes

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// WalletForgotten is announced thirty days after the last deposit.
type WalletForgotten struct{ Wallet string }

// EventType names the event on the wire.
func (WalletForgotten) EventType() string { return "wallet.forgotten" }

// Remind announces WalletForgotten in thirty days, and cancels the reminder that was set before. It belongs to the unit of a deposit: if
// that is rolled back, the former reminder stays.
func Remind(ctx context.Context, u *uow.Unit, events *outbox.Store, wallet string) error {
	key := "reminder of " + wallet
	if _, err := events.Delayed().CancelKey(ctx, u.DB(), key); err != nil {
		return err
	}
	_, err := u.Schedule("reminder", WalletForgotten{wallet}, event.WithDelay(30*24*time.Hour), event.WithDedupKey(key))
	return err
}
