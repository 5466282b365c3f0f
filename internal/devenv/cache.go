package devenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// cacheFolder returns this module's folder in the user's cache folder.
func cacheFolder() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("devenv: find the user's cache folder: %w", err)
	}
	folder := filepath.Join(base, "oncebox")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("devenv: make the cache folder: %w", err)
	}
	return folder, nil
}

// cached returns the entry with this name in the cache folder. If there is none, fill has to put it into
// the workshop's subfolder "unpacked". The entry appears as a whole or not at all, and is made only once
// even if several processes ask for it.
func cached(ctx context.Context, name string, opts Options, fill func(*workshop) error) (string, error) {
	folder, err := cacheFolder()
	if err != nil {
		return "", err
	}
	entry := filepath.Join(folder, name)
	if exists(entry) {
		return entry, nil
	}
	return entry, locked(ctx, name, opts, func(w *workshop) error {
		if exists(entry) {
			return nil // another process has made it meanwhile
		}
		if err := fill(w); err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(w.folder, unpacked), entry); err != nil {
			return fmt.Errorf("devenv: put %s into the cache folder: %w", name, err)
		}
		return nil
	})
}

// locked calls do while no other process is in a call with the same name.
func locked(ctx context.Context, name string, opts Options, do func(*workshop) error) error {
	folder, err := cacheFolder()
	if err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(folder, name+".lock"), opts.FetchTimeout)
	if err != nil {
		return err
	}
	w, err := openWorkshop(folder, opts)
	if err != nil {
		return errors.Join(err, unlock())
	}
	return errors.Join(do(w), w.Stop(), unlock())
}

// lock locks the file next to path, and waits while another process holds the lock.
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
