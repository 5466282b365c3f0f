//go:build unix

package pgtest

import (
	"context"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Stall stops what the server sends to its standby: nothing is confirmed until the standby is released, or ever if the server
// is killed before.
func (s *Own) Stall(t testing.TB) (release func()) {
	t.Helper()
	var sender int
	require.NoError(t, s.connect(t).QueryRow(context.Background(), "SELECT pid FROM pg_stat_replication").Scan(&sender))
	require.NoError(t, syscall.Kill(sender, syscall.SIGSTOP))
	release = sync.OnceFunc(func() { _ = syscall.Kill(sender, syscall.SIGCONT) }) // it is gone if its server was killed
	t.Cleanup(release)
	return release
}
