package recipes

import (
	"errors"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
)

// Wallet is an aggregate.
type Wallet struct {
	event.Recorder `bun:"-"`

	bun.BaseModel `bun:"table:wallets"`
	ID            string `bun:"id,pk"`
	Cents         int64  `bun:"cents"`
	Version       int64  `bun:"version"`
}

// Deposited is its event.
type Deposited struct {
	Wallet string
	Cents  int64
}

// EventType names the event on the wire.
func (Deposited) EventType() string { return "wallet.deposited" }

// Withdrawn is the other one.
type Withdrawn struct {
	Wallet string
	Cents  int64
}

// EventType names the event on the wire.
func (Withdrawn) EventType() string { return "wallet.withdrawn" }

// AggregateType is part of the wallet's identity.
func (*Wallet) AggregateType() string { return "wallet" }

// AggregateID is part of the wallet's identity.
func (w *Wallet) AggregateID() string { return w.ID }

// AggregateVersion counts the events of the wallet.
func (w *Wallet) AggregateVersion() int64 { return w.Version }

// Deposit changes the wallet.
func (w *Wallet) Deposit(cents int64) {
	w.Cents += cents
	w.Record(Deposited{w.ID, cents})
}

// ErrTooLittle means that a wallet has less than is withdrawn.
var ErrTooLittle = errors.New("the wallet has too little")

// Withdraw changes the wallet, or refuses to.
func (w *Wallet) Withdraw(cents int64) error {
	if w.Cents < cents {
		return ErrTooLittle
	}
	w.Cents -= cents
	w.Record(Withdrawn{w.ID, cents})
	return nil
}
