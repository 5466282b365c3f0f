package pgsql

import (
	"database/sql/driver"
	"time"

	"github.com/jackc/pgx/v5"
)

// Asked returns connectors that ask a connection each time it is handed out, and give it so long.
func Asked(cfg *pgx.ConnConfig, patience time.Duration) map[string]driver.Connector {
	asked := func(o *connectorOptions) { o.idle, o.patience = 0, patience }
	return map[string]driver.Connector{"behind a pooler": NewConnector(*cfg, asked, BehindPooler()), "pipelined": NewConnector(*cfg, asked)}
}

// Age makes what is known of a session as old as it can get, with another mark.
func Age(conn *pgx.Conn, mark string) {
	data := conn.PgConn().CustomData()
	s, _ := data[sessionKey].(Session)
	s.Mark = mark
	if !s.asked.IsZero() {
		s.asked = s.asked.Add(-sessionAge)
	}
	data[sessionKey] = s
}
