package config

import (
	"errors"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of tcp(7), in milliseconds. Package syscall has no name for it.
const tcpUserTimeout = 18

func setUserTimeout(c syscall.RawConn, timeout time.Duration) (err error) {
	control := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(timeout.Milliseconds()))
	})
	return errors.Join(control, err)
}
