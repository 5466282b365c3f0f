package devenv

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// port is a port of 127.0.0.1 on which nobody listens, reserved for one server. The reservation holds from before the
// server listens, for seconds at its start and again at a restart, also against other processes. It is a lock: the UDP
// port with the same number.
type port struct {
	number int
	lock   net.PacketConn
}

// takePort reserves a port below the range that the system uses for outgoing connections. A port of that range could be
// taken while the server restarts, even by a client that tries to reach it and becomes connected to itself.
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
