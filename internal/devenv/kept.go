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

// stopTimeout is how long [Release] waits until the servers have ended.
const stopTimeout = 2 * time.Minute

// kept describes the servers that one process keeps for the other processes of this user. It is stored in a file.
type kept struct {
	PID int      `json:"pid"`
	Env []string `json:"env"`
}

// keptFiles returns the paths of two files: the lock that the process holds while its servers run, and
// their description.
func keptFiles() (lock, state string, err error) {
	folder, err := cacheFolder()
	return filepath.Join(folder, "kept.lock"), filepath.Join(folder, "kept.json"), err
}

// Keep starts both servers and keeps them until ctx is done. Other processes find them with [Kept]. It calls up when
// the servers answer. If another process of this user keeps servers already, it returns at once.
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

// Kept returns the variables with the addresses of kept servers, nil if no process keeps servers.
func Kept() ([]string, error) {
	k, err := readKept()
	if k == nil || err != nil {
		return nil, err
	}
	return k.Env, nil
}

// Release ends the process that keeps servers, and returns when they have ended. It returns false if there
// is no such process.
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

// readKept returns nil if no process keeps servers, or if it is still starting them.
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
