package devenv

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// port is one of 127.0.0.1 that nobody listens on, until it is released. No other port has its number before that, in this
// process or another: a server takes seconds until it listens on its own, and listens again after a restart. The lock is the
// UDP port of the same number.
type port struct {
	number int
	lock   net.PacketConn
}

// takePort finds a port below the range from which systems take the ports of outgoing connections. One from that range can be
// taken while the server is down for a restart, even by a client that tries to reach it and ends up connected to itself.
func takePort() (*port, error) {
	const first, last = 20000, 32000
	for range 100 {
		number := first + rand.IntN(last-first)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(number))
		lock, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err == nil {
			err = l.Close()
		}
		if err == nil {
			return &port{number, lock}, nil
		}
		_ = lock.Close()
	}
	return nil, errors.New("devenv: found no free port between 20000 and 32000 on 127.0.0.1 in 100 tries")
}

func (p *port) release() { _ = p.lock.Close() }
