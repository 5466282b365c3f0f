//go:build linux || darwin

package devenv

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

//go:embed watchdog.sh
var watchdogScript string

// hold is a shell program that waits for a line before it executes the server, so that the watchdog knows the process
// id first. If the other end of the pipe closes without a line, read fails and nothing is executed.
const hold = `read -r go && exec "$@" </dev/null`

// watchdog is a process that ends a server when this process ends, even if this process is killed. It
// watches one server at a time.
type watchdog struct {
	cmd   *exec.Cmd
	leash *os.File // when this process, or the kernel after its death, closes it, the watchdog ends the server
}

// newWatchdog starts a watchdog. When it acts, it sends the signal to the program that was reported last,
// and then removes the folder.
func newWatchdog(signal, folder string) (*watchdog, error) {
	end, leash, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("devenv: make the watchdog's pipe: %w", err)
	}
	defer end.Close()
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "watchdog.sh", signal, folder)
	cmd.Dir = "/"
	cmd.Stdin = end
	// In a session of its own it does not get the terminal's ctrl-C or hang-up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		leash.Close()
		return nil, fmt.Errorf("devenv: start the watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, leash: leash}, nil
}

// start runs a program under the watchdog, as the given user if there is one.
//
// This process may be killed at any moment. So the child waits before it executes the program: it either gets a line
// after the watchdog knows its id, or sees the end of its input and exits.
func (w *watchdog) start(cmd *exec.Cmd, as *account) (*child, error) {
	path := cmd.Path
	cmd.Path = "/bin/sh"
	cmd.Args = append([]string{"sh", "-c", hold, "sh", path}, cmd.Args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if as != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid}
	}
	in, gate, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("devenv: make the pipe of %s: %w", path, err)
	}
	defer in.Close()
	defer gate.Close()
	cmd.Stdin = in
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("devenv: start %s: %w", path, err)
	}
	err = errors.Join(w.tell(cmd.Process.Pid), release(gate))
	c := &child{cmd: cmd, exited: make(chan struct{})}
	go func() {
		defer close(c.exited)
		c.err = cmd.Wait()
		// This fails only after stop, when the watchdog no longer reads.
		_ = w.tell(0)
	}()
	if err != nil {
		return nil, fmt.Errorf("devenv: hand %s to its watchdog: %w", path, err)
	}
	return c, nil
}

func (w *watchdog) tell(pid int) error {
	_, err := fmt.Fprintln(w.leash, pid)
	return err
}

func release(gate *os.File) error {
	_, err := gate.WriteString("go\n")
	return err
}

// stop makes the watchdog end the program and remove the folder, and waits for it, for a little more than
// 10 seconds at most.
func (w *watchdog) stop() error {
	if err := w.leash.Close(); err != nil {
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		return fmt.Errorf("devenv: stop the server: %w", err)
	}
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("devenv: stop the server: its watchdog ended with: %w", err)
	}
	return nil
}

// child is a program that runs under a watchdog.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the program has ended; err is set then
	err    error
}

// kill sends SIGKILL and waits for the end.
func (c *child) kill() error { return c.end(os.Kill) }

// end is kill with another signal.
func (c *child) end(signal os.Signal) error {
	if err := c.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("devenv: send %s to process %d: %w", signal, c.cmd.Process.Pid, err)
	}
	<-c.exited
	return nil
}
