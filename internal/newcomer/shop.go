package newcomer

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pagetest"
)

// shop is a built program, which runs until it gets a signal.
type shop struct {
	path string
	env  []string
}

// requests are the lines of the README for curl. The comment is what is seen of the answer.
var requests = regexp.MustCompile(`(?m)^(curl .+?)\s+# (.+)$`)

// try starts the program at a free address, sends the requests of the README, and ends the program.
func (s *shop) try(t *testing.T, readme string) {
	t.Helper()
	lines := requests.FindAllStringSubmatch(readme, -1)
	require.Len(t, lines, 3, "the README has the requests of the five steps")
	ctx, kill := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, s.path) //nolint:gosec // it was built by the test
	cmd.Env = append([]string{"ONCEBOX_SERVE_ADDR=127.0.0.1:0"}, s.env...)
	for _, name := range []string{"ONCEBOX_DATABASE_URL", "DATABASE_URL", "PATH", "HOME", "TMPDIR"} { // PULSAR_URL would choose a broker
		cmd.Env = append(cmd.Env, name+"="+os.Getenv(name))
	}
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())

	addr, read := make(chan string, 1), make(chan struct{})
	var log strings.Builder
	go func() {
		defer close(read)
		defer close(addr) // a program that could not start has none
		for written := bufio.NewScanner(stderr); written.Scan(); {
			log.WriteString(written.Text() + "\n")
			if _, at, listens := strings.Cut(written.Text(), `msg="oncebox: the process listens" addr=`); listens {
				addr <- at
			}
		}
	}()
	defer func() {
		kill()
		<-read
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	if at := await.Receive(t, addr, "the program to listen"); at != "" { // "": it has ended, and the log says why
		ask(t, lines, "http://"+at)
	}
	http.DefaultClient.CloseIdleConnections()
	_ = cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
	<-read
	require.NoError(t, cmd.Wait())
}

// ask sends the requests when the program is ready. What a handler of events changes is asked for until it is there.
func ask(t *testing.T, lines [][]string, url string) {
	t.Helper()
	await.True(t, func() bool { return seen(t, "curl -i "+url+"/readyz", url) == "200 OK" }, "the program to be ready")
	for _, line := range lines {
		if withHeader(line[1]) {
			require.Equal(t, line[2], seen(t, line[1], url), line[1])
			continue
		}
		await.True(t, func() bool { return seen(t, line[1], url) == line[2] }, "%s to answer %s", line[1], line[2])
	}
}

// withHeader reports whether curl shows status and header.
func withHeader(line string) bool { return strings.Contains(line, " -i ") }

// seen sends the request of a line and returns what curl shows: with -i the status and whether the answer was a stored one, else the body.
func seen(t *testing.T, line, url string) string {
	t.Helper()
	resp, err := http.DefaultClient.Do(pagetest.Request(t, line, url))
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	if !withHeader(line) {
		return strings.TrimSpace(string(body))
	}
	if replayed := resp.Header.Get("Idempotent-Replayed"); replayed != "" {
		return resp.Status + ", Idempotent-Replayed: " + replayed
	}
	return resp.Status
}
