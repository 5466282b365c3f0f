//go:build unix && nightly

package endurance

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
)

// process is a consumer, or a projector, in a process of its own: this test's program once more.
type process struct {
	t        *testing.T
	name     string
	cmd      *exec.Cmd
	alive    io.Closer // closed: the test has gone
	received *deliveries
	log      tail
	exited   chan struct{}
	err      error // how it exited, once it has
}

// start starts a process. None is left when the test has ended, or was killed.
func start(t *testing.T, do task) *process {
	t.Helper()
	received := &deliveries{}
	p := startTo(t, do, received)
	p.received = received
	return p
}

// startTo is start for a process whose standard output goes elsewhere, and its log too.
func startTo(t *testing.T, do task, out io.Writer, logs ...io.Writer) *process {
	t.Helper()
	text, err := json.Marshal(do)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{t: t, name: do.Name, cmd: exec.Command(self), exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), taskVariable+"="+string(text))
	p.cmd.Stdout, p.cmd.Stderr = out, io.MultiWriter(append(logs, &p.log)...)
	p.alive, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.exited)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if said := p.log.String(); t.Failed() || strings.Contains(said, "DATA RACE") {
			t.Errorf("--- %s: %v\n%s", p.name, p.err, said)
		}
	})
	return p
}

// kill ends it as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it is gone
	<-p.exited
	_ = p.alive.Close()
}

// stop ends it as an orchestrator does.
func (p *process) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
	await.Receive(p.t, p.exited, "SIGTERM ends %s", p.name)
	require.NoError(p.t, p.err, "%s did not end cleanly", p.name)
}

// freeze stops it in the middle of whatever it does. It goes on when thaw is called, or when the test has gone.
func (p *process) freeze() (thaw func()) {
	p.t.Helper()
	guard := exec.Command("/bin/sh", "-c", `read -r _; kill -CONT "$0"`, strconv.Itoa(p.cmd.Process.Pid))
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := guard.StdinPipe()
	require.NoError(p.t, err)
	require.NoError(p.t, guard.Start())
	thaw = sync.OnceFunc(func() {
		_ = in.Close()
		_ = guard.Wait()
	})
	p.t.Cleanup(thaw)
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGSTOP))
	return thaw
}

// deliveries lists the messages that came to a process, with the times at which the test learned of them.
type deliveries struct {
	mu      sync.Mutex
	partial string
	n       int
	of      map[string][]string
}

func (d *deliveries) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of == nil {
		d.of = map[string][]string{}
	}
	now := time.Now().Format("05.000")
	lines := strings.Split(d.partial+string(p), "\n")
	for _, line := range lines[:len(lines)-1] {
		key, number, _ := strings.Cut(line, " ")
		d.of[key] = append(d.of[key], number+"@"+now)
		d.n++
	}
	d.partial = lines[len(lines)-1]
	return len(p), nil
}

// count returns how many deliveries were written.
func (d *deliveries) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.n
}

// history returns the deliveries of a key, in the order in which they were written.
func (d *deliveries) history(key string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.of[key], " ")
}

// tail keeps the end of the text that was written.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	l.buf = l.buf[max(0, len(l.buf)-6<<10):]
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.Clone(l.buf))
}
