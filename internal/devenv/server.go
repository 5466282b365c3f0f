package devenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
)

// ErrNotStartedHere is the error of Kill and Restart for a server that was found running: this process may not kill it.
var ErrNotStartedHere = errors.New("devenv: the server was not started by this process")

// server is a server program with its own folder and watchdog. dog is nil for a server that was found running.
type server struct {
	name     string
	folder   string
	as       *account
	volatile bool // its data may be lost in a crash of the machine
	dog      *watchdog
	timeout  time.Duration
	ports    []*port
	command  func() *exec.Cmd
	ready    func(context.Context) error // returns nil if the server answers; it asks once

	mu      sync.Mutex
	current *child
}

func (s *server) logFile() string { return filepath.Join(s.folder, "server.log") }

// prepare makes the folder, and the watchdog that removes it.
func (s *server) prepare(signal string) error {
	folder, err := s.as.tempFolder(s.name, s.volatile)
	if err != nil {
		return err
	}
	dog, err := newWatchdog(signal, folder)
	if err != nil {
		os.RemoveAll(folder)
		return err
	}
	s.folder, s.dog = folder, dog
	return nil
}

// takePort reserves a port until the server is stopped.
func (s *server) takePort() (int, error) {
	p, err := takePort()
	if err != nil {
		return 0, err
	}
	s.ports = append(s.ports, p)
	return p.number, nil
}

// launch starts a program in the server's folder. Its output goes to the server's log, unless cmd sets another place.
func (s *server) launch(cmd *exec.Cmd) (*child, error) {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("devenv: open the log of %s: %w", s.name, err)
	}
	defer log.Close()
	cmd.Dir = s.folder
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	cmd.Stderr = log
	return s.dog.start(cmd, s.as)
}

// run runs a program and waits for its end.
func (s *server) run(ctx context.Context, cmd *exec.Cmd) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	program := cmd.Path
	c, err := s.launch(cmd)
	if err != nil {
		return err
	}
	select {
	case <-c.exited:
		if c.err != nil {
			return s.withLog(fmt.Errorf("devenv: %s: %w", program, c.err))
		}
		return nil
	case <-ctx.Done():
		return s.withLog(errors.Join(fmt.Errorf("devenv: %s did not end in time: %w", program, ctx.Err()), c.kill()))
	}
}

// start starts the server program and waits until it answers.
func (s *server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return fmt.Errorf("devenv: %s runs already", s.name)
	}
	for {
		c, err := s.launch(s.command())
		if err != nil {
			return err
		}
		if err = s.await(ctx, c); err == nil {
			s.current = c
			return nil
		}
		err = s.withLog(errors.Join(err, c.kill()))
		if !leftovers(err) || backoff.Wait(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

// leftovers reports whether a server could not start because processes of the killed server had not ended yet. The last two lines of its log say
// so, apart from lines in which these processes log their own end.
func leftovers(err error) bool {
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(err.Error()), "\n"), func(line string) bool {
		return strings.Contains(line, "unexpected postmaster exit")
	})
	last := strings.Join(lines[max(len(lines)-2, 0):], "\n")
	return errors.Is(err, errEnded) && strings.Contains(last, "pre-existing shared memory block")
}

// errEnded means that the server has ended by itself.
var errEnded = errors.New("ended before it answered")

func (s *server) await(ctx context.Context, c *child) error {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-c.exited:
			return fmt.Errorf("devenv: %s %w: %w", s.name, errEnded, c.err)
		case <-ctx.Done():
			return fmt.Errorf("devenv: %s did not answer in time (%w), last: %w", s.name, ctx.Err(), last)
		case <-look.C:
			if last = s.ready(ctx); last == nil {
				return nil
			}
		}
	}
}

func (s *server) withLog(err error) error {
	return fmt.Errorf("%w\nthe log's last lines:\n%s", err, logTail(s.logFile()))
}

// Kill ends the server with SIGKILL, as a crash would, and returns when its process is gone. Its data stays for Restart.
func (s *server) Kill() error { return s.End(os.Kill) }

// End is Kill with another signal that ends the server.
func (s *server) End(signal os.Signal) error {
	if s.dog == nil {
		return ErrNotStartedHere
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return nil
	}
	err := s.current.end(signal)
	s.current = nil
	return err
}

// Signal sends the server process a signal that does not end it.
func (s *server) Signal(signal os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dog == nil || s.current == nil {
		return ErrNotStartedHere
	}
	return s.current.cmd.Process.Signal(signal)
}

// Restart kills the server if it runs, starts it again on the same ports and data, and returns when it answers.
func (s *server) Restart(ctx context.Context) error {
	if err := s.Kill(); err != nil {
		return err
	}
	return s.start(ctx)
}

// Stop ends the server and removes its data, unless it was found running. A second call does nothing.
func (s *server) Stop() error {
	if s.dog == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.dog.stop()
	if s.current != nil {
		<-s.current.exited
		s.current = nil
	}
	for _, p := range s.ports {
		p.release()
	}
	s.ports = nil
	return err
}
