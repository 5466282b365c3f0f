//go:build linux || darwin

package devenv

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// tryLock locks a file, unless another process holds the lock. The operating system releases the lock when
// this process ends.
func tryLock(path string) (unlock func() error, ok bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("devenv: open the lock file: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f.Close, true, nil
	}
	closed := f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return nil, false, closed
	}
	return nil, false, errors.Join(fmt.Errorf("devenv: lock %s: %w", path, err), closed)
}
