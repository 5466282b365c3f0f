package devenv

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// reserved keeps the ports that this process was given from others that look for one: see freePort.
var reserved struct { //nolint:gochecknoglobals // of the process, as ports are
	sync.Mutex
	locks []net.PacketConn
}

// freePort returns a port of 127.0.0.1 that nobody listens on. No other call returns it, in this process or another, before this
// process ends: a server takes seconds until it listens on its own, and listens again after a restart. The lock is the UDP port of
// the same number.
//
// It lies below the range from which systems take the ports of outgoing connections. One from that range can be taken while
// the server is down for a restart, even by a client that tries to reach it and ends up connected to itself.
func freePort() (int, error) {
	const first, last = 20000, 32000
	for range 100 {
		port := first + rand.IntN(last-first)
		if reserve(net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) {
			return port, nil
		}
	}
	return 0, errors.New("devenv: found no free port between 20000 and 32000 on 127.0.0.1 in 100 tries")
}

func reserve(address string) bool {
	lock, err := net.ListenPacket("udp", address)
	if err != nil {
		return false
	}
	l, err := net.Listen("tcp", address)
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		_ = lock.Close()
		return false
	}
	reserved.Lock()
	defer reserved.Unlock()
	reserved.locks = append(reserved.locks, lock)
	return true
}
