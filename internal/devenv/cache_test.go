//go:build linux || darwin

package devenv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCacheEntryIsFilledOnce(t *testing.T) {
	ownCache(t)
	var fills atomic.Int32
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			entry, err := cached(t.Context(), "entry", withDefaults(nil), func(w *workshop) error {
				fills.Add(1)
				return os.WriteFile(filepath.Join(w.folder, unpacked), []byte("content"), 0o600)
			})
			if content, _ := os.ReadFile(entry); err != nil || string(content) != "content" {
				t.Errorf("got %q, %v", content, err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, fills.Load())
}

func TestCacheEntryThatFailsIsNotThere(t *testing.T) {
	ownCache(t)
	opts := withDefaults(nil)
	var folder string
	_, err := cached(t.Context(), "entry", opts, func(w *workshop) error {
		folder = w.folder
		return errors.Join(os.Mkdir(filepath.Join(w.folder, unpacked), 0o700), errors.New("no network"))
	})
	require.ErrorContains(t, err, "no network")
	require.NoDirExists(t, folder)

	// The next try starts anew.
	entry, err := cached(t.Context(), "entry", opts, func(w *workshop) error {
		return os.Mkdir(filepath.Join(w.folder, unpacked), 0o700)
	})
	require.NoError(t, err)
	require.DirExists(t, entry)
}

func TestLockWaitIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, time.Minute)
	require.NoError(t, err)
	_, err = lock(t.Context(), path, time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, unlock())
	unlock, err = lock(t.Context(), path, time.Minute)
	require.NoError(t, err)
	require.NoError(t, unlock())
}

func TestWorkshopShowsWhatAProgramSaid(t *testing.T) {
	opts := withDefaults(nil)
	w, err := openWorkshop(t.TempDir(), opts)
	require.NoError(t, err)
	defer w.Stop()
	err = w.run(t.Context(), opts, "sh", "-c", "echo said; echo complained >&2; exit 1")
	require.ErrorContains(t, err, "exit status 1")
	require.ErrorContains(t, err, "complained")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, w.run(ctx, opts, "sleep", "600"), context.Canceled)
}

// ownCache gives the test a cache folder of its own, on Linux by one variable and on macOS by the other.
func ownCache(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
}
