package kills

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// leash ends the processes of a trial when the process that runs the trial has gone, by SIGKILL or otherwise: the kernel then
// closes the pipe that only that process holds open, and the script at its other end acts.
type leash struct {
	cmd *exec.Cmd
	end *os.File
}

const leashScript = `
live=" "
while read -r what pid; do
	case $what in
	began) live="$live$pid " ;;
	ended) live="${live%% $pid *} ${live#* $pid }" ;;
	esac
done
for pid in $live; do
	kill -KILL "$pid"
done`

func newLeash() (*leash, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the leash: %w", err)
	}
	defer read.Close()
	cmd := exec.Command("/bin/sh", "-c", leashScript) //nolint:noctx // it outlives everything
	cmd.Stdin = read
	// In a session of its own it gets neither the terminal's ctrl-C nor its hang-up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("make the leash: %w", err), write.Close())
	}
	return &leash{cmd: cmd, end: write}, nil
}

// began and ended report a process to the leash. A process that is reported too late is ended by the trial all the same, unless
// the trial is killed at that very moment.
func (l *leash) began(pid int) { fmt.Fprintln(l.end, "began", pid) }
func (l *leash) ended(pid int) { fmt.Fprintln(l.end, "ended", pid) }

// close ends what is left.
func (l *leash) close() error { return errors.Join(l.end.Close(), l.cmd.Wait()) }
