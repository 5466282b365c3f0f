//go:build unix && nightly

package endurance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
)

const (
	clients         = 24
	ordersPerSecond = 150
)

// shop is examples/orders in a process of its own, with clients that order all the time.
type shop struct {
	t   *testing.T
	url string
	log tail

	http     *http.Client
	answered sync.Map // ids of orders whose clients were told 201
	count    atomic.Int64
	unsure   atomic.Int64 // answers that said that nobody knows
}

// openShop builds and starts the service on a database. No process is left when the test has ended, or was killed.
func openShop(t *testing.T, database string, env ...string) *shop {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "orders")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../examples/orders").CombinedOutput()
	require.NoError(t, err, string(out))

	s := &shop{t: t, http: &http.Client{Timeout: 2 * time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: clients}}}
	cmd := exec.Command("/bin/sh", "-c", `"$0" </dev/null & child=$!; read -r _; kill -9 $child; wait`, binary)
	cmd.Env = append(os.Environ(), append([]string{
		"ONCEBOX_DATABASE_URL=" + database, "ONCEBOX_SERVE_BROKER=none", "ONCEBOX_SERVE_ADDR=127.0.0.1:0",
		// A message fails with each crash, which is not its fault.
		"ONCEBOX_INBOX_RETRY_MAX_ATTEMPTS=-1", "ONCEBOX_INBOX_RETRY_MAX_DELAY=5s",
	}, env...)...)
	leash, err := cmd.StdinPipe()
	require.NoError(t, err)
	stderr, write := io.Pipe()
	cmd.Stderr = write
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = leash.Close()
		_ = cmd.Wait()
		_ = write.Close()
		s.http.CloseIdleConnections()
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	listening := make(chan string, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			_, _ = s.log.Write(append(lines.Bytes(), '\n'))
			if _, addr, is := strings.Cut(lines.Text(), "addr="); is && strings.Contains(lines.Text(), "oncebox: the process listens") {
				listening <- addr
			}
		}
	}()
	s.url = "http://" + await.Receive(t, listening, "orders listens")
	return s
}

// load has clients place orders until it is told to stop. Each repeats its request, with the same key, until it is told what
// became of it.
func (s *shop) load() (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	pace := time.NewTicker(time.Second / ordersPerSecond)
	var ordering sync.WaitGroup
	for range clients {
		ordering.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-pace.C:
					s.place(ctx)
				case <-ctx.Done():
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		ordering.Wait()
		pace.Stop()
	})
	s.t.Cleanup(stop)
	return stop
}

func (s *shop) place(ctx context.Context) {
	const order = `{"customer_id":"c%d","items":[{"sku":"a","qty":2,"price_cents":500}]}`
	key, body := uuid.NewString(), fmt.Sprintf(order, s.count.Load()%100)
	for ctx.Err() == nil {
		status, answer, err := s.post(ctx, key, body)
		if err == nil && status == http.StatusCreated {
			var placed struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal(answer, &placed); err != nil {
				s.t.Errorf("the answer %q: %v", answer, err)
				return
			}
			s.answered.Store(placed.ID, time.Now())
			s.count.Add(1)
			return
		}
		if bytes.Contains(answer, []byte("commit-unknown")) {
			s.unsure.Add(1)
		}
		select {
		case <-time.After(50 * time.Millisecond): // as clients do before they try again
		case <-ctx.Done():
		}
	}
}

func (s *shop) post(ctx context.Context, key, body string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, s.url+"/orders", strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// moreAnswers waits until n more orders were answered.
func (s *shop) moreAnswers(n int64) {
	s.t.Helper()
	upTo := s.count.Load() + n
	await.True(s.t, func() bool { return s.count.Load() >= upTo }, "%d orders are answered", upTo)
}

var unknownUnits = regexp.MustCompile(`oncebox_uow_units_total\{[^}]*outcome="unknown"[^}]*\} ([0-9]+)`)

// unknown is how many units, of requests and of consumers, ended without anybody knowing how.
func (s *shop) unknown() int {
	s.t.Helper()
	resp, err := s.http.Get(s.url + "/metrics")
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	found := unknownUnits.FindSubmatch(text)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(s.t, err)
	return n
}
