package devenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewestProgramsAreFound(t *testing.T) {
	newer, newest, tooOld := fakePrograms(t, "98.1"), fakePrograms(t, "99beta1"), fakePrograms(t, "9.6.24")
	for _, order := range [][]string{{newer, newest, tooOld}, {tooOld, newest, newer}} {
		t.Setenv("PATH", fmt.Sprintf("%s:%s:%s:%s", order[0], order[1], order[2], os.Getenv("PATH")))
		found, err := findPrograms(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, newest, found)
	}
}

func TestMajorVersion(t *testing.T) {
	for text, want := range map[string]int{"15.13 (Debian 15.13-0+deb12u1)": 15, "9.6.24": 9, "18devel": 18, "": 0} {
		require.Equal(t, want, majorVersion(context.Background(), filepath.Join(fakePrograms(t, text), "postgres")), text)
	}
	require.Zero(t, majorVersion(context.Background(), filepath.Join(t.TempDir(), "none")))
}

func TestProgramsThatTheUserCannotReachAreNotFound(t *testing.T) {
	folder := fakePrograms(t, "99.0")
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	require.NoError(t, os.Chmod(folder, 0o700))
	found, err := findPrograms(t.Context(), &account{uid: 1, gid: 1})
	if err != nil {
		require.ErrorIs(t, err, errNoPrograms)
	}
	require.NotEqual(t, folder, found)
}

func TestDownloadIsBounded(t *testing.T) {
	broken := errors.New("no network")
	ended := make(chan error, 1)
	ended <- broken
	require.Equal(t, broken, withDefaults(nil).whileItRuns(t.Context(), ended))

	never := make(chan error)
	opts := withDefaults(&Options{FetchTimeout: time.Millisecond})
	require.ErrorIs(t, opts.whileItRuns(t.Context(), never), errNotDone)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := withDefaults(nil).whileItRuns(ctx, never)
	require.ErrorIs(t, err, errNotDone)
	require.ErrorIs(t, err, context.Canceled)
}

// fakePrograms makes a folder with programs that only print a version.
func fakePrograms(t *testing.T, version string) string {
	t.Helper()
	folder, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	script := fmt.Sprintf("#!/bin/sh\necho 'postgres (PostgreSQL) %s'\n", version)
	for _, program := range []string{"initdb", "postgres"} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, program), []byte(script), 0o755))
	}
	return folder
}
