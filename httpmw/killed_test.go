//go:build unix

package httpmw_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// process is a service in a process of its own: this test's program once more.
type process struct {
	cmd *exec.Cmd
	url string
	in  io.Closer // closed: the test has gone
}

func startDoomed(t *testing.T, d doom) *process {
	t.Helper()
	text, err := json.Marshal(d)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), doomVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	addr, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.in.Close() }) // it ends then, if it has not come to its point
	p.url = "http://" + strings.TrimSpace(addr)
	return p
}

// killed waits until the process has killed itself.
func (p *process) killed(t *testing.T) {
	t.Helper()
	var exit *exec.ExitError
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	require.ErrorAs(t, await.Receive(t, ended, "a process to come to the point at which it kills itself"), &exit)
	require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())
	_ = p.in.Close()
}

func (p *process) stop() {
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

// A process is killed while it executes a request: at each point, in each mode, with each kind of pool. Another one is there for
// the retries.
func TestKilledAtEachPoint(t *testing.T) {
	t.Parallel()
	rounds := nightly.N(6, 200) // one for each point at least
	for mode, d := range map[string]doom{
		"atomic":              {Pool: "pipelined"},
		"atomic, plain":       {Pool: "plain"},
		"atomic, with pooler": {Pool: "pooled"},
		"lease":               {Pool: "pipelined", Lease: true},
		"lease, with pooler":  {Pool: "pooled", Lease: true},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := pgtest.Migrated(t, pgtest.Outbox, pgtest.Idempotency)
			_, err := db.ExecContext(t.Context(), `CREATE TABLE payments (id bigserial PRIMARY KEY, note text, key text UNIQUE);
				CREATE TABLE emitted (id text PRIMARY KEY)`)
			require.NoError(t, err)
			d.DSN, d.Schema, d.Without = db.DSN, db.Schema, os.Getenv("ENDURANCE_WITHOUT")
			if d.Pool == "pooled" {
				d.DSN = db.Pooled(t).DSN
			}
			alive := startDoomed(t, d)
			defer alive.stop()
			s := &siege{t: t, db: db, alive: alive, doom: d}
			for n := range rounds {
				s.round(d.points()[n%len(d.points())], n)
			}
			var executions, emitted int
			require.NoError(t, db.QueryRowContext(t.Context(), "SELECT (SELECT count(*) FROM payments), (SELECT count(*) FROM emitted)").
				Scan(&executions, &emitted))
			require.Equal(t, s.kills, executions)
			if !d.Lease {
				require.Equal(t, s.kills, emitted)
			}
			t.Logf("killed mode=%q kills=%d executions=%d lost_answers=%d conflicts=%d replayed=%d slowest_recovery=%s", mode, s.kills, executions,
				s.lost.Load(), s.conflicts.Load(), s.replayed.Load(), s.slowest.Round(time.Millisecond))
		})
	}
}

// siege are rounds against the same database.
type siege struct {
	t                         *testing.T
	db                        *pgtest.DB
	alive                     *process
	doom                      doom
	kills                     int
	lost, conflicts, replayed atomic.Int64
	slowest                   time.Duration
}

// round makes three clients send a request until they have an answer. The process that they begin with is killed.
func (s *siege) round(point string, n int) {
	s.t.Helper()
	key := fmt.Sprintf("%s-%d", point, n)
	d := s.doom
	d.Point = point
	p := startDoomed(s.t, d)
	var url atomic.Value
	url.Store(p.url)
	answers := make([]reply, 3)
	errs := make([]error, len(answers))
	var group sync.WaitGroup
	for i := range answers {
		group.Go(func() { answers[i], errs[i] = s.insist(&url, key) })
	}
	p.killed(s.t)
	s.kills++
	killed := time.Now()
	var longest float64
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), `SELECT coalesce(extract(epoch FROM max(locked_until) - clock_timestamp()), 0)
		FROM idempotency_keys`).Scan(&longest))
	require.LessOrEqual(s.t, longest, shortLease.Seconds(), "a key is locked for longer than its lease")
	url.Store(s.alive.url)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		group.Wait()
	}()
	await.Receive(s.t, answered, "answers to all clients of %s: nobody may be locked out", key)
	s.slowest = max(s.slowest, time.Since(killed))

	require.NoError(s.t, errors.Join(errs...), key)
	for _, got := range answers {
		require.Equal(s.t, http.StatusCreated, got.status, "%s: %s", key, got.body)
		require.Equal(s.t, answers[0].body, got.body, "%s: the answers differ", key)
	}
	var payments, stored int
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), `SELECT (SELECT count(*) FROM payments WHERE note = ?),
		(SELECT count(*) FROM idempotency_keys WHERE state = 'completed')`, key).Scan(&payments, &stored))
	require.Equal(s.t, 1, payments, "%s: executions", key)
	require.Equal(s.t, s.kills, stored, "%s: answers that are stored", key)
}

// insist sends the request until it is answered, by whichever process is there.
func (s *siege) insist(url *atomic.Value, key string) (reply, error) {
	for s.t.Context().Err() == nil {
		r, err := http.NewRequest(http.MethodPost, url.Load().(string)+"/payments", strings.NewReader(key))
		if err != nil {
			return reply{}, err
		}
		r.Header.Set("Idempotency-Key", key)
		r.Header.Set("X-Principal", "u1")
		got, err := send(r)
		switch {
		case err != nil, got.header.Get(siegeHeader) != s.db.Schema: // the port of the killed process may be that of another one by now
			s.lost.Add(1)
		case got.status == http.StatusConflict, got.status == http.StatusServiceUnavailable:
			s.conflicts.Add(1)
		default:
			if got.header.Get("Idempotent-Replayed") != "" {
				s.replayed.Add(1)
			}
			return got, nil
		}
		<-time.After(20 * time.Millisecond) // as clients do that come again
	}
	return reply{}, s.t.Context().Err()
}
