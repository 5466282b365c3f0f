package pgsql

import "github.com/jackc/pgx/v5"

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
