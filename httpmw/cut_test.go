package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/uow"
)

// Clients close their connection at a random byte of what they send or of what they get, and send the request again.
func TestConnectionIsCutAtAnyByte(t *testing.T) {
	for mode, lease := range map[string]*httpmw.LeaseConfig{"atomic": nil, "lease": {}} {
		t.Run(mode, func(t *testing.T) {
			for seed := range nightly.Seeds(t, 1, 10) {
				s := newService(t)
				s.cfg.Lease = lease
				s.cutOften(seed, 100)
			}
		})
	}
}

// cutOften cuts so many requests. What is drawn for each depends on the seed alone.
func (s *service) cutOften(seed uint64, times int) {
	s.t.Helper()
	s.start(s.echo)
	whole, err := s.cut(cutKey(times), cut{after: math.MaxInt})
	require.NoError(s.t, err)
	var group sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		group.Go(func() {
			for n := i; n < times; n += len(errs) {
				key := cutKey(n)
				if _, errs[i] = s.cut(key, drawCut(seed, n, whole)); errs[i] != nil {
					return
				}
				if errs[i] = s.insistOn(key); errs[i] != nil {
					return
				}
			}
		})
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		group.Wait()
	}()
	await.Receive(s.t, answered, "answers to all whose connection was cut")
	for _, err := range errs {
		require.NoError(s.t, err)
	}
	require.EqualValues(s.t, times+1, s.runs.Load(), "runs: nobody's work ends with the connection")
	require.Equal(s.t, times+1, s.payments())
	require.Equal(s.t, times+1, s.count("SELECT count(DISTINCT note) FROM payments"), "executions")
	require.Equal(s.t, times+1, s.stored())
	require.Equal(s.t, 1, s.count("SELECT count(DISTINCT length(body)) FROM idempotency_keys WHERE state = 'completed'"), "no answer was cut off")
}

// cut is where a connection is closed.
type cut struct {
	after int           // bytes of both ways
	pause time.Duration // after the last byte of the request: it is executed
	reset bool          // and no goodbye
}

// drawCut draws the nth cut: one third each while the request is sent, while the answer is sent, and in between.
func drawCut(seed uint64, n int, whole exchanged) cut {
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	c := cut{after: whole.sent, pause: time.Duration(random.Int64N(int64(5 * time.Millisecond))), reset: random.IntN(2) == 0}
	switch n % 3 {
	case 0:
		c.after = random.IntN(whole.sent)
	case 1:
		c.after += 1 + random.IntN(whole.got)
	}
	return c
}

// cutKey returns a key; all are of one length, and so are bodies and answers.
func cutKey(n int) string { return fmt.Sprintf("key-%06d", n) }

func cutBody(key string) string {
	return fmt.Sprintf(`{"note": "%s", "padding": "%s", "end": true}`, key, strings.Repeat("p", 20_000))
}

// echo stores a payment with the body that arrived, whether that is whole or not, and sends it back.
func (s *service) echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	noError(s.t, err)
	err = s.units.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
		_, err := u.DB().ExecContext(ctx, "INSERT INTO payments (note) VALUES (?)", r.Header.Get("Idempotency-Key"))
		return err
	})
	if err != nil {
		http.Error(w, "failed", http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body)
}

// exchanged is how many bytes went each way.
type exchanged struct{ sent, got int }

// cut sends a request and closes the connection.
func (s *service) cut(key string, at cut) (e exchanged, err error) {
	r, err := s.cutRequest(key)
	if err != nil {
		return e, err
	}
	r.Close = true
	request, err := httputil.DumpRequestOut(r, true)
	if err != nil {
		return e, err
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		return e, err
	}
	defer conn.Close()
	if at.reset {
		_ = conn.(*net.TCPConn).SetLinger(0)
	}
	e.sent, err = conn.Write(request[:min(at.after, len(request))])
	if err != nil || at.after < len(request) {
		return e, err
	}
	if at.after == len(request) {
		<-time.After(at.pause)
		return e, nil
	}
	n, err := io.CopyN(io.Discard, conn, int64(at.after-e.sent))
	e.got = int(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return e, err
}

func (s *service) cutRequest(key string) (*http.Request, error) {
	r, err := http.NewRequest(http.MethodPost, s.url+"/payments", strings.NewReader(cutBody(key)))
	if err == nil {
		r.Header.Set("Idempotency-Key", key)
		r.Header.Set("X-Principal", "u1")
		r.Header.Set("Content-Type", "application/json")
	}
	return r, err
}

// insistOn sends the request until there is an answer, which must be the expected one.
func (s *service) insistOn(key string) error {
	for {
		r, err := s.cutRequest(key)
		if err != nil {
			return err
		}
		got, err := send(r)
		switch {
		case err != nil:
			return err
		case got.status == http.StatusConflict && s.t.Context().Err() == nil:
			<-time.After(10 * time.Millisecond) // as clients do that come again
		case got.status != http.StatusCreated || got.body != cutBody(key):
			return fmt.Errorf("%s: %d with %d bytes where there should have been %d: %.200s", key, got.status, len(got.body), len(cutBody(key)), got.body)
		default:
			return nil
		}
	}
}
