//go:build unix

package pgtest

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
)

// Crash kills all processes of the server at once, as a crash of its machine does, and starts it again.
func (s *Own) Crash(t testing.TB) {
	t.Helper()
	one := int(s.connect(t).PgConn().PID())
	// Or it would start others while they are counted.
	require.NoError(t, s.Signal(syscall.SIGSTOP))
	parents := processes(t)
	require.Greater(t, parents[one], 1, "the server process")
	for pid, parent := range parents {
		if parent == parents[one] {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
	require.NoError(t, s.Restart(context.Background()))
}

// processes returns the parent of each process of this machine.
func processes(t testing.TB) map[int]int {
	t.Helper()
	list, err := exec.CommandContext(context.Background(), "ps", "-A", "-o", "pid=,ppid=").Output()
	require.NoError(t, err)
	parents := map[int]int{}
	for line := range strings.Lines(string(list)) {
		var pid, parent int
		_, err := fmt.Sscan(line, &pid, &parent)
		require.NoError(t, err, line)
		parents[pid] = parent
	}
	return parents
}

// KillSession kills a session, as the system does where memory is short, and waits until the server has recovered.
func (s *Own) KillSession(t testing.TB) {
	t.Helper()
	victim, other := s.connect(t), s.connect(t)
	require.NoError(t, syscall.Kill(int(victim.PgConn().PID()), syscall.SIGKILL))
	// The server ends all other sessions, and then takes none before it has recovered.
	await.True(t, func() bool { return other.Ping(t.Context()) != nil }, "the server ends the other sessions")
	await.True(t, func() bool {
		conn, err := pgx.Connect(t.Context(), s.URL)
		return err == nil && conn.Close(t.Context()) == nil
	}, "the server has recovered")
}

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
