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

// dial opens connections that notice when the other host says nothing any more. Without it the system repeats what was sent for
// about 15 minutes (Linux, tcp(7), tcp_retries2), and where only an answer is waited for nothing is ever sent.
//
// TCP_USER_TIMEOUT is for what was sent, on Linux; the keep-alive is for answers. connect is how long a host may take to accept. Where
// it is not set that is a quarter of timeout: of several hosts in the URL the first may be the one that vanished, and each new
// connection tries it first. A host that has accepted has the whole of timeout for what follows, TLS and the start of the session: it
// lives, and may be busy.
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
