package devenv

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// freePort returns a port of 127.0.0.1 that nobody listens on.
//
// It lies below the range from which systems take the ports of outgoing connections. One from that range can be taken while
// the server is down for a restart, even by a client that tries to reach it and ends up connected to itself.
func freePort() (int, error) {
	const first, last = 20000, 32000
	for range 100 {
		port := first + rand.IntN(last-first)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err == nil {
			return port, nil
		}
	}
	return 0, errors.New("devenv: found no free port between 20000 and 32000 on 127.0.0.1 in 100 tries")
}
