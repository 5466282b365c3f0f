package main

import (
	"encoding/json"
	"errors"

	"github.com/oncebox/oncebox/event"
)

// What happens to accounts.
type (
	// Opened is the first event of an account.
	Opened struct {
		Owner string `json:"owner"`
	}
	// Deposited is version 2. The first version of this program called it account.credited and counted euros; events_test.go
	// keeps a sample of it.
	Deposited struct {
		Cents int64 `json:"cents"`
	}
	// Withdrawn takes money out.
	Withdrawn struct {
		Cents int64 `json:"cents"`
	}
)

// EventType and the other names below must never change.
func (Opened) EventType() string    { return "account.opened" }
func (Deposited) EventType() string { return "account.deposited" }
func (Withdrawn) EventType() string { return "account.withdrawn" }

func register(r *event.Registry) {
	event.Register[Opened](r)
	event.Register[Deposited](r, event.WithVersion(2), event.WithAliases("account.credited"), event.WithUpcaster(1, eurosToCents))
	event.Register[Withdrawn](r)
}

func eurosToCents(payload []byte) ([]byte, error) {
	var old struct {
		Euros int64 `json:"euros"`
	}
	if err := json.Unmarshal(payload, &old); err != nil {
		return nil, err
	}
	return json.Marshal(Deposited{Cents: 100 * old.Euros})
}

// Account is an aggregate that is stored only as its events.
type Account struct {
	event.Recorder

	ID      string
	Version int64 // as stored
	Owner   string
	Cents   int64
}

// AggregateType, AggregateID and AggregateVersion make it an event.Aggregate.
func (*Account) AggregateType() string     { return "account" }
func (a *Account) AggregateID() string     { return a.ID }
func (a *Account) AggregateVersion() int64 { return a.Version }

var (
	errOpen      = errors.New("the account is open already")
	errNotOpen   = errors.New("there is no such account")
	errOverdrawn = errors.New("there is not enough money in the account")
)

// Open decides whether the account may be opened; apply changes the state.
func (a *Account) Open(owner string) error {
	if a.Owner != "" {
		return errOpen
	}
	a.happened(Opened{Owner: owner})
	return nil
}

// Deposit puts money in.
func (a *Account) Deposit(cents int64) error {
	if a.Owner == "" {
		return errNotOpen
	}
	a.happened(Deposited{Cents: cents})
	return nil
}

// Withdraw takes money out, as long as there is some.
func (a *Account) Withdraw(cents int64) error {
	if cents > a.Cents {
		return errOverdrawn
	}
	a.happened(Withdrawn{Cents: cents})
	return nil
}

// happened records a new event and applies it. Loaded events are only applied.
func (a *Account) happened(e event.Event) {
	a.apply(e)
	a.Record(e)
}

// apply changes the state. It decides nothing, because the event has already happened.
func (a *Account) apply(e event.Event) {
	switch e := e.(type) {
	case Opened:
		a.Owner = e.Owner
	case Deposited:
		a.Cents += e.Cents
	case Withdrawn:
		a.Cents -= e.Cents
	}
}
