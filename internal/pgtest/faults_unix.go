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

// Crash kills all processes of the server at once, as a crash of the machine would, and starts it again.
func (s *Own) Crash(t testing.TB) {
	t.Helper()
	one := int(s.connect(t).PgConn().PID())
	// Stopped, the server cannot start other processes while they are counted.
	require.NoError(t, s.Signal(syscall.SIGSTOP))
	parents := processes(t)
	require.Greater(t, parents[one], 1, "the server process")
	for pid, parent := range parents {
		if parent == parents[one] {
			_ = syscall.Kill(pid, syscall.SIGKILL) // an error means that it has ended already
		}
	}
	require.NoError(t, s.Restart(context.Background()))
}

// processes returns the parent of each process on this machine.
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

// KillSession kills the process of a session, as Linux does when memory runs out, and waits until the
// server has recovered.
func (s *Own) KillSession(t testing.TB) {
	t.Helper()
	victim, other := s.connect(t), s.connect(t)
	require.NoError(t, syscall.Kill(int(victim.PgConn().PID()), syscall.SIGKILL))
	// The server ends all other sessions, and permits new ones only after its recovery.
	await.True(t, func() bool { return other.Ping(t.Context()) != nil }, "the server ends the other sessions")
	await.True(t, func() bool {
		conn, err := pgx.Connect(t.Context(), s.URL)
		return err == nil && conn.Close(t.Context()) == nil
	}, "the server has recovered")
}

// Stall stops the data that the server sends to its standby, so that the standby confirms nothing. release continues
// it; if the server is killed first, the standby never gets the rest.
func (s *Own) Stall(t testing.TB) (release func()) {
	t.Helper()
	var sender int
	require.NoError(t, s.connect(t).QueryRow(context.Background(), "SELECT pid FROM pg_stat_replication").Scan(&sender))
	require.NoError(t, syscall.Kill(sender, syscall.SIGSTOP))
	release = sync.OnceFunc(func() { _ = syscall.Kill(sender, syscall.SIGCONT) }) // an error means that it ended with its server
	t.Cleanup(release)
	return release
}
