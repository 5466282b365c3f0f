package devenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// unpacked is the subfolder of a workshop that becomes the cache entry.
const unpacked = "unpacked"

// workshop is a temporary folder for programs that download and unpack something. They end with this
// process, as servers do.
type workshop struct{ server }

func openWorkshop(parent string, opts Options) (*workshop, error) {
	folder, err := os.MkdirTemp(parent, "work-")
	if err != nil {
		return nil, fmt.Errorf("devenv: make a folder to work in: %w", err)
	}
	dog, err := newWatchdog("TERM", folder)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return &workshop{server{name: "workshop", folder: folder, dog: dog, timeout: opts.FetchTimeout}}, nil
}

// run runs a program and waits for its end. Its output goes to the terminal if there is one, and otherwise
// into the error.
func (w *workshop) run(ctx context.Context, opts Options, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("devenv: %w", err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if terminal := opts.terminal(); terminal != nil {
		cmd.Stdout = terminal
	}
	return w.server.run(ctx, cmd)
}
