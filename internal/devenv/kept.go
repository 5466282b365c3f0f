package devenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// stopTimeout bounds how long [Release] waits for the end of the servers.
const stopTimeout = 2 * time.Minute

// kept is written by the process that keeps servers, for all others of this user.
type kept struct {
	PID int      `json:"pid"`
	Env []string `json:"env"`
}

// keptFiles are the lock that the process holds for as long as its servers run, and the file with the rest.
func keptFiles() (lock, state string, err error) {
	folder, err := cacheFolder()
	return filepath.Join(folder, "kept.lock"), filepath.Join(folder, "kept.json"), err
}

// Keep starts both servers and keeps them for other processes, which find them by [Kept], until ctx is done. It calls up when they answer. If
// another process of this user keeps servers already, it returns at once.
func Keep(ctx context.Context, options *Options, up func()) (err error) {
	lock, state, err := keptFiles()
	if err != nil {
		return err
	}
	unlock, ours, err := tryLock(lock)
	if err != nil || !ours {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	servers, err := Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, servers.Stop()) }()
	text, err := json.Marshal(kept{os.Getpid(), servers.Env()})
	if err != nil {
		return err
	}
	if err := os.WriteFile(state, text, 0o600); err != nil {
		return fmt.Errorf("devenv: write where the servers are: %w", err)
	}
	defer os.Remove(state)
	up()
	<-ctx.Done()
	return nil
}

// Kept returns the variables that name the servers which a process keeps, nil if there are none.
func Kept() ([]string, error) {
	k, err := readKept()
	if k == nil || err != nil {
		return nil, err
	}
	return k.Env, nil
}

// Release ends the process that keeps servers, and returns when they are gone. It returns false if there is none.
func Release(ctx context.Context) (bool, error) {
	k, err := readKept()
	if k == nil || err != nil {
		return false, err
	}
	keeper, err := os.FindProcess(k.PID)
	if err == nil {
		err = keeper.Signal(syscall.SIGTERM)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, fmt.Errorf("devenv: end process %d, which keeps the servers: %w", k.PID, err)
	}
	path, _, err := keptFiles()
	if err != nil {
		return false, err
	}
	unlock, err := lock(ctx, path, stopTimeout)
	if err != nil {
		return false, err
	}
	return true, unlock()
}

// readKept returns nil if no process keeps servers, or if it still starts them.
func readKept() (*kept, error) {
	lock, state, err := keptFiles()
	if err != nil {
		return nil, err
	}
	unlock, free, err := tryLock(lock)
	if err != nil {
		return nil, err
	}
	if free {
		return nil, unlock()
	}
	text, err := os.ReadFile(state)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var k kept
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		return nil, fmt.Errorf("devenv: read where the servers are, from %s: %w", state, err)
	}
	return &k, nil
}
