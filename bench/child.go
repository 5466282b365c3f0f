package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// child is another process of this program. It reads its task from its standard input, and ends when the input ends.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	say *gob.Encoder
	out *gob.Decoder
}

// spawn starts a process for a part of a command, sends it its task, and waits for its answer, which it
// decodes into ready, a pointer.
func spawn(ctx context.Context, command string, task, ready any) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	c := &child{cmd: exec.CommandContext(ctx, self, command, "-part")} //nolint:gosec // this program
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(os.Interrupt) }
	c.cmd.WaitDelay = 20 * time.Second
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		c.in, err = c.cmd.StdinPipe()
	}
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start it: %w", err)
	}
	c.say, c.out = gob.NewEncoder(c.in), gob.NewDecoder(out)
	if err := errors.Join(c.say.Encode(task), c.out.Decode(ready)); err != nil {
		return nil, errors.Join(fmt.Errorf("it did not get ready, its standard error says why: %w", err), c.in.Close(), c.cmd.Wait())
	}
	return c, nil
}
