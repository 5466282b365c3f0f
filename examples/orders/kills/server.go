package kills

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
)

// Server is a broker in a process of its own, which can be killed.
type Server struct {
	// Command is the program and its arguments. Default: this program once more.
	Command []string
	// Env is its environment, in addition to that of this process.
	Env []string
	// Addr is the address, host:port, that accepts connections when the broker is there. Required.
	Addr string

	cmd   *exec.Cmd
	leash *leash
}

// FreeAddr returns an address on this machine that nobody listens on.
func FreeAddr() (string, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Start starts the process and waits until it accepts connections.
func (s *Server) Start(ctx context.Context) (err error) {
	command := s.Command
	if len(command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		command = []string{self}
	}
	if s.leash == nil {
		if s.leash, err = newLeash(); err != nil {
			return err
		}
	}
	s.cmd = exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // the program of the trial; it is killed by hand
	s.cmd.Env = append(os.Environ(), s.Env...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	s.leash.began(s.cmd.Process.Pid)
	return eventually(ctx, "the broker to accept connections at "+s.Addr, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// Crash kills the process with SIGKILL and starts it again.
func (s *Server) Crash(ctx context.Context) error {
	s.kill()
	return s.Start(ctx)
}

func (s *Server) kill() {
	_ = s.cmd.Process.Kill() // fails only if it is gone
	_ = s.cmd.Wait()
	s.leash.ended(s.cmd.Process.Pid)
}

// Close kills the process for good.
func (s *Server) Close() error {
	if s.cmd == nil {
		return nil
	}
	s.kill()
	return errors.Join(s.leash.close())
}
