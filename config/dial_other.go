//go:build !linux

package config

import (
	"syscall"
	"time"
)

// setUserTimeout does nothing: the keep-alive alone notices that the other host is gone.
func setUserTimeout(syscall.RawConn, time.Duration) error { return nil }
