package recipes

import (
	"context"
	"errors"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/uow"
)

// ErrNoWallet means that one of two wallets does not exist.
var ErrNoWallet = errors.New("there is no such wallet")

// Transfer changes two wallets, both or none. All transfers lock their wallets in the order of the ids, so that two
// transfers in opposite directions wait for each other in turn and do not deadlock.
func Transfer(ctx context.Context, units *uow.Manager, from, to string, cents int64) error {
	return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		var locked []*Wallet
		err := u.DB().NewSelect().Model(&locked).Where("id IN (?)", bun.List([]string{from, to})).Order("id").For("UPDATE").Scan(ctx)
		if err != nil {
			return err
		}
		wallets := map[string]*Wallet{}
		for _, w := range locked {
			wallets[w.ID] = w
		}
		payer, payee := wallets[from], wallets[to]
		if payer == nil || payee == nil {
			return ErrNoWallet
		}
		if err := payer.Withdraw(cents); err != nil {
			return err
		}
		payee.Deposit(cents)
		return u.Save(ctx, payer, payee)
	})
}
