package devenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// unpacked is the subfolder of a fetch that becomes the cache entry.
const unpacked = "unpacked"

// fetch fills a cache entry. Its programs run in a temporary folder and end with this process, as servers do.
type fetch struct{ server }

// cached returns the entry of that name in the user's cache folder. If it is not there, fill has to put it into the fetch's
// subfolder "unpacked". The entry appears as a whole or not at all, and is filled once however many processes ask.
func cached(ctx context.Context, name string, opts Options, fill func(*fetch) error) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("devenv: find the user's cache folder: %w", err)
	}
	folder := filepath.Join(base, "oncebox")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("devenv: make the cache folder: %w", err)
	}
	entry := filepath.Join(folder, name)
	if exists(entry) {
		return entry, nil
	}
	unlock, err := lock(ctx, entry+".lock", opts.FetchTimeout)
	if err != nil {
		return "", err
	}
	if !exists(entry) { // another process may have filled it while this one waited
		err = fillEntry(entry, opts, fill)
	}
	return entry, errors.Join(err, unlock())
}

func fillEntry(entry string, opts Options, fill func(*fetch) error) error {
	folder, err := os.MkdirTemp(filepath.Dir(entry), "fetch-")
	if err != nil {
		return fmt.Errorf("devenv: make a folder to fetch to: %w", err)
	}
	dog, err := newWatchdog("TERM", folder)
	if err != nil {
		return errors.Join(err, os.RemoveAll(folder))
	}
	f := &fetch{server{name: filepath.Base(entry), folder: folder, dog: dog, timeout: opts.FetchTimeout}}
	if err = fill(f); err == nil {
		err = os.Rename(filepath.Join(folder, unpacked), entry)
	}
	return errors.Join(err, f.Stop())
}

// run runs a program of the fetch to its end. Its output goes to the terminal if there is one, else to the error it ends in.
func (f *fetch) run(ctx context.Context, opts Options, name string, args ...string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("devenv: %w", err)
	}
	cmd := exec.Command(path, args...)
	if terminal := opts.terminal(); terminal != nil {
		cmd.Stdout = terminal
	}
	return f.server.run(ctx, cmd)
}

// lock takes the lock that goes with a file, and waits while another process has it.
func lock(ctx context.Context, path string, timeout time.Duration) (unlock func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		unlock, ok, err := tryLock(path)
		if ok || err != nil {
			return unlock, err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("devenv: wait for another process that holds %s: %w", path, ctx.Err())
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
