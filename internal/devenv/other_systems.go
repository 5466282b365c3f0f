//go:build !linux && !darwin

package devenv

import (
	"errors"
	"os"
	"os/exec"
)

var errSystem = errors.New("devenv: servers are started on Linux and macOS only; set DATABASE_URL and PULSAR_URL to running ones, " +
	"for example those of: docker compose up -d")

type watchdog struct{}

func newWatchdog(string, string) (*watchdog, error)         { return nil, errSystem }
func (*watchdog) start(*exec.Cmd, *account) (*child, error) { return nil, errSystem }
func (*watchdog) stop() error                               { return errSystem }

type child struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error
}

func (*child) kill() error         { return errSystem }
func (*child) end(os.Signal) error { return errSystem }

func tryLock(string) (unlock func() error, ok bool, err error) { return nil, false, errSystem }
