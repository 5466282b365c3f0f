package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
)

const (
	// payloadSize is the size of every event's payload, in bytes.
	payloadSize = 512
	// aggregates is the number of accounts over which the events are spread.
	aggregates = 1000

	accountType = "account"
	source      = "bench"
	tenant      = "default"
)

// account is the aggregate of the benchmarks.
type account struct {
	bun.BaseModel  `bun:"table:account"`
	event.Recorder `bun:"-"`

	ID      string `bun:"id,pk"`
	Balance int64  `bun:"balance"`
	Version int64  `bun:"version"`
}

// AggregateType returns "account".
func (*account) AggregateType() string { return accountType }

// AggregateID returns the account's id.
func (a *account) AggregateID() string { return a.ID }

// AggregateVersion returns the stored version.
func (a *account) AggregateVersion() int64 { return a.Version }

// createAccounts fills pages only by half, so that an UPDATE finds room in its page.
const createAccounts = `
CREATE TABLE account (id text PRIMARY KEY, balance bigint NOT NULL, version bigint NOT NULL) WITH (fillfactor = 50);
INSERT INTO account SELECT 'a-' || to_char(i, 'FM000000'), 0, 0 FROM generate_series(0, %d) i`

func accountID(i int) string { return fmt.Sprintf("a-%06d", i) }

// moneyMoved is the event. Its JSON has payloadSize bytes.
type moneyMoved struct {
	AccountID string `json:"account_id"`
	Amount    int64  `json:"amount"`
	Memo      string `json:"memo"`
}

// EventType returns "account.money_moved".
func (moneyMoved) EventType() string { return "account.money_moved" }

func newMoneyMoved(id string) moneyMoved {
	const skeleton = len(`{"account_id":"a-000000","amount":1,"memo":""}`)
	return moneyMoved{AccountID: id, Amount: 1, Memo: strings.Repeat("m", payloadSize-skeleton)}
}

// encode does what a service without oncebox would do.
func (m moneyMoved) encode() ([]byte, error) { return json.Marshal(m) }

// metadata returns what the context of a request usually has.
func metadata() event.Metadata {
	return event.Metadata{
		"correlation_id": "01936f2e-7c1a-7b3e-9d55-3f0c8a1b2c4d",
		"traceparent":    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
}
