package config

import (
	"cmp"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// silence is the default of Config.TCPUserTimeout.
const silence = 20 * time.Second

// dial opens connections that notice when the other host has vanished. Without it the system repeats unconfirmed data for about 15 minutes (Linux,
// tcp(7), tcp_retries2), and a connection that only waits for an answer never notices, because it sends nothing.
//
// TCP_USER_TIMEOUT limits how long sent data stays unconfirmed, on Linux. The keep-alive covers connections that wait for an answer. connect limits
// how long a host may take to accept, 0: a quarter of timeout, because the first of several hosts in the URL may have vanished, and each new
// connection tries it first. After a host has accepted, TLS and the start of the session get the whole timeout: the host lives, and may be busy.
func dial(timeout, connect time.Duration) pgconn.DialFunc {
	d := &net.Dialer{
		Timeout: cmp.Or(connect, max(timeout/4, time.Second)),
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: max(timeout/2, time.Second), Interval: max(timeout/6, time.Second), Count: 3,
		},
		Control: func(network, _ string, c syscall.RawConn) error {
			if !strings.HasPrefix(network, "tcp") {
				return nil
			}
			return setUserTimeout(c, timeout)
		},
	}
	return d.DialContext
}
