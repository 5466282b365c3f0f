// Package fit adds oncebox to existing code: a wallet on database/sql, on pgx with sqlc, and on GORM, and HTTP handlers on net/http and chi. None
// of them uses bun. All of them keep their pool, their queries and their transactions.
package fit

// Tables are those of the wallet. Those of oncebox are made by migrations.Up.
const Tables = `CREATE TABLE accounts (id text PRIMARY KEY, cents bigint NOT NULL CHECK (cents >= 0), version bigint NOT NULL)`

// Topic is where the wallet's events go.
const Topic = "account"

// Deposited is the event of the wallet.
type Deposited struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

// EventType is the name by which consumers know it.
func (Deposited) EventType() string { return "account.deposited" }
