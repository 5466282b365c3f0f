//go:build linux || darwin

package devenv

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/leaktest"
)

// helperVar makes the test binary a program that starts the named server, prints where it is, and waits to be killed.
const helperVar = "ONCEBOX_DEVENV_TEST_STARTS"

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVar); name != "" {
		if err := helper(name); err != nil {
			fmt.Fprintln(os.Stdout, err)
			os.Exit(1)
		}
		return
	}
	leaktest.Exit(m.Run())
}

// helper prints the server's process id, its folder and the user it runs for, then waits for the end of its input.
func helper(name string) error {
	var s *server
	switch name {
	case "postgres":
		p, err := Postgres(context.Background(), nil)
		if err != nil {
			return err
		}
		s = &p.server
	case "pulsar":
		p, err := Pulsar(context.Background(), nil)
		if err != nil {
			return err
		}
		s = &p.server
	default:
		return fmt.Errorf("unknown server %q", name)
	}
	fmt.Fprintln(os.Stdout, s.current.cmd.Process.Pid, s.folder, os.Geteuid())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return s.Stop()
}

// starter is a process that runs the helper.
type starter struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	pid    int
	folder string
	uid    int
}

// startHelper runs the helper in a process of its own, as the given user if there is one.
func startHelper(t *testing.T, name string, as *account) *starter {
	t.Helper()
	cmd := exec.Command(sharedCopy(t))
	cmd.Env = append(os.Environ(), helperVar+"="+name, "DATABASE_URL=", "PULSAR_URL=")
	cmd.Stderr = os.Stderr
	if as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: as.uid, Gid: as.gid}}
		cmd.Dir = "/"
	}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	fields := strings.Fields(line)
	require.Len(t, fields, 3, line)
	s := &starter{cmd: cmd, stdin: stdin, folder: fields[1]}
	s.pid, err = strconv.Atoi(fields[0])
	require.NoError(t, err)
	s.uid, err = strconv.Atoi(fields[2])
	require.NoError(t, err)
	require.True(t, runs(s.pid), "the helper's server runs")
	return s
}

// sharedCopy copies the test binary to where every user can run it: go test's own folder is only for its owner.
func sharedCopy(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	program, err := os.ReadFile(self)
	require.NoError(t, err)
	folder, err := os.MkdirTemp("", "oncebox-helper-") //nolint:usetesting // the test's own is only for its owner too
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	require.NoError(t, os.Chmod(folder, 0o755))
	path := filepath.Join(folder, "helper")
	writeProgram(t, path, program)
	return path
}

// writeProgram writes a file that is run at once. A process that is forked while the file is open has it open too until it runs its own
// program, and Linux runs no file that is open for writing ("text file busy"): so none is forked meanwhile.
func writeProgram(t *testing.T, path string, program []byte) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, program, 0o755))
}

func requireGone(t *testing.T, pid int, folder string) {
	t.Helper()
	await.True(t, func() bool { return !runs(pid) }, "process %d is gone", pid)
	await.True(t, func() bool {
		_, err := os.Stat(folder)
		return os.IsNotExist(err)
	}, "folder %s is gone", folder)
}

// runs reports whether a process exists that has not ended. In a container nobody may collect what has ended.
func runs(pid int) bool {
	state, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && !strings.HasPrefix(strings.TrimSpace(string(state)), "Z")
}
