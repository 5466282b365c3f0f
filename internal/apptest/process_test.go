package apptest_test

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

// process is the service in a process of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   *logbook.Book
	ended chan error
}

// launch starts this program once more, as the service. It is killed when the test ends.
func launch(t *testing.T, vars map[string]string) *process {
	t.Helper()
	p := &process{t: t, log: &logbook.Book{}, ended: make(chan error, 1)}
	ctx, kill := context.WithCancel(context.Background())
	p.cmd = exec.CommandContext(ctx, os.Args[0])
	p.cmd.Env = []string{called + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for name, value := range vars {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	require.NoError(t, p.cmd.Start())
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() {
		kill()
		<-p.ended
		http.DefaultClient.CloseIdleConnections()
		if t.Failed() {
			t.Log(p.log)
		}
	})
	return p
}

// says waits until the log has a line with this text.
func (p *process) says(text string) {
	p.t.Helper()
	await.True(p.t, func() bool { return strings.Contains(p.log.String(), text) }, "the process to say %q", text)
}

// url waits until the process listens, and returns the address that its log has as this attribute.
func (p *process) url(attr string) string {
	p.t.Helper()
	p.says("oncebox: the process listens")
	line := regexp.MustCompile(`msg="oncebox: the process listens".* ` + attr + `=(\S+)\n`)
	if attr == "admin_addr" {
		line = regexp.MustCompile(`msg="oncebox: the process listens" admin_addr=(\S+) `)
	}
	await.True(p.t, func() bool { return line.MatchString(p.log.String()) }, "the address %s", attr)
	return "http://" + line.FindStringSubmatch(p.log.String())[1]
}

// ready waits until a probe says that the process can work.
func ready(t *testing.T, url string) {
	t.Helper()
	await.True(t, func() bool {
		status, _ := do(t, http.MethodGet, url+"/readyz")
		return status == http.StatusOK
	}, "the process to be ready")
}

func (p *process) signal() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(syscall.SIGTERM))
}

// end waits until the process has ended, and returns its exit code.
func (p *process) end() int {
	p.t.Helper()
	err := await.Receive(p.t, p.ended, "the process to end")
	p.ended <- err
	return p.cmd.ProcessState.ExitCode()
}

// A service of twenty lines starts, answers, publishes, handles, shows its state, and ends.
func TestServiceFromItsStartToItsEnd(t *testing.T) {
	db, n := pgtest.Open(t), pulsartest.Open(t)
	vars := variables(t, db, onPulsar(n, n.URL))
	vars["ONCEBOX_SERVE_CONSOLE_OPERATORS"], vars["ONCEBOX_SERVE_CONSOLE_READERS"] = "ann:secret", "bob:other"
	vars["ONCEBOX_SERVE_LOG_FORMAT"] = "text"
	p := launch(t, vars)
	url := p.url("addr")
	status, _ := do(t, http.MethodGet, url+"/healthz")
	require.Equal(t, http.StatusOK, status)
	ready(t, url)
	for range 2 { // the second one gets the stored answer
		status, body := do(t, http.MethodPost, url+"/orders/o-1", "Idempotency-Key", "k1")
		require.Equal(t, http.StatusCreated, status, body)
	}
	await.True(t, func() bool { return count(t, db, "SELECT count(*) FROM handled WHERE id = 'o-1'") == 1 }, "the event to be handled")
	await.True(t, func() bool { return count(t, db, "SELECT count(*) FROM outbox_messages WHERE status = 'SENT'") == 1 }, "the event to be settled")

	status, metrics := do(t, http.MethodGet, url+"/metrics")
	require.Equal(t, http.StatusOK, status)
	for _, line := range []string{
		`(?m)^oncebox_uow_units_total\{[^}]*outcome="committed"`, `(?m)^go_goroutines `, `(?m)^process_start_time_seconds `,
		`(?m)^http_server_request_duration_seconds_count\{[^}]*http_route="/orders/\{id\}"[^}]*\} 2$`,
	} {
		require.Regexp(t, line, metrics)
	}
	for _, c := range []struct {
		user, password, says string
		status               int
	}{
		{"", "", "", http.StatusUnauthorized},
		{"ann", "other", "", http.StatusUnauthorized},
		{"ann", "secret", "may change", http.StatusOK},
		{"bob", "other", "read only", http.StatusOK},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/console/", http.NoBody)
		require.NoError(t, err)
		req.SetBasicAuth(c.user, c.password)
		status, page := do(t, http.MethodGet, url+"/console/", "Authorization", req.Header.Get("Authorization"))
		require.Equal(t, c.status, status, c.user)
		require.Contains(t, page, c.says, c.user)
	}
	status, _ = do(t, http.MethodGet, url+"/panic")
	require.Equal(t, http.StatusInternalServerError, status, "a handler that panics ends its request only")

	p.signal()
	require.Zero(t, p.end(), p.log)
}

// Requests that have begun are answered after SIGTERM, while the address takes no more. Probes see meanwhile that the process ends.
func TestRequestsThatHaveBegunAreAnswered(t *testing.T) {
	db, n := pgtest.Open(t), pulsartest.Open(t)
	vars := variables(t, db, onPulsar(n, n.URL))
	vars["ONCEBOX_SERVE_ADMIN_ADDR"] = "127.0.0.1:0"
	p := launch(t, vars)
	url, admin := p.url("addr"), p.url("admin_addr")
	ready(t, admin)
	status, _ := do(t, http.MethodGet, url+"/metrics")
	require.Equal(t, http.StatusNotFound, status, "operators have an address of their own")

	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "SELECT pg_advisory_lock(?)", gate)
	require.NoError(t, err)
	const requests = 10
	answers := make(chan int, requests)
	for k := range requests {
		go func() {
			id := strconv.Itoa(k)
			req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, url+"/slow/"+id, http.NoBody)
			if err != nil {
				answers <- 0
				return
			}
			req.Header.Set("Idempotency-Key", id)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				answers <- 0
				return
			}
			_ = resp.Body.Close()
			answers <- resp.StatusCode
		}()
	}
	waiting := "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = " + strconv.Itoa(gate)
	await.True(t, func() bool { return count(t, db, waiting) == requests }, "all requests to wait")
	p.signal()
	await.True(t, func() bool {
		status, _ := do(t, http.MethodGet, admin+"/readyz")
		return status == http.StatusServiceUnavailable
	}, "the process to say that it ends")
	await.True(t, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/", http.NoBody)
		require.NoError(t, err)
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err != nil
	}, "the address to take no more requests")
	_, err = conn.ExecContext(t.Context(), "SELECT pg_advisory_unlock(?)", gate)
	require.NoError(t, err)
	for range requests {
		require.Equal(t, http.StatusCreated, await.Receive(t, answers, "an answer"))
	}
	require.Zero(t, p.end(), p.log)
	require.Equal(t, requests, count(t, db, "SELECT count(*) FROM orders"))
	require.Equal(t, requests, count(t, db, "SELECT count(*) FROM outbox_messages"))
}

// The second signal does not wait for anything.
func TestASecondSignalEndsAtOnce(t *testing.T) {
	db := pgtest.Open(t)
	p := launch(t, variables(t, db, nil))
	url := p.url("addr")
	ready(t, url)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/stuck", http.NoBody)
		if err == nil {
			_, _ = http.DefaultClient.Do(req) //nolint:bodyclose // it is never answered
		}
	}()
	p.says("msg=stuck")
	p.signal()
	p.says("oncebox: the process ends")
	p.signal()
	require.Equal(t, -1, p.end(), "ended by a signal")
	require.Equal(t, syscall.SIGTERM, p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}
