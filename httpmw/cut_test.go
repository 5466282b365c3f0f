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
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/uow"
)

// Clients close their connection at a random byte of what they send or of what they get, and send the request again.
func TestConnectionIsCutAtAnyByte(t *testing.T) {
	times := 200
	if os.Getenv("ENDURANCE_LONG") != "" {
		times = 1000
	}
	for mode, lease := range map[string]*httpmw.LeaseConfig{"atomic": nil, "lease": {}} {
		t.Run(mode, func(t *testing.T) {
			s := newService(t)
			s.cfg.Lease = lease
			s.start(s.echo)
			whole, err := s.cut(cutKey(times), math.MaxInt)
			require.NoError(t, err)
			var sending, receiving atomic.Int64
			var group sync.WaitGroup
			errs := make([]error, 8)
			for i := range errs {
				group.Go(func() {
					for n := i; n < times; n += len(errs) {
						key := cutKey(n)
						at := whole.sent // the end of the request, while it is executed
						switch n % 3 {
						case 0:
							at = rand.IntN(whole.sent)
							sending.Add(1)
						case 1:
							at += 1 + rand.IntN(whole.got)
							receiving.Add(1)
						}
						if _, errs[i] = s.cut(key, at); errs[i] != nil {
							return
						}
						if errs[i] = s.insistOn(key); errs[i] != nil {
							return
						}
					}
				})
			}
			group.Wait()
			for _, err := range errs {
				require.NoError(t, err)
			}
			require.EqualValues(t, times+1, s.runs.Load(), "runs: nobody's work ends with the connection")
			require.Equal(t, times+1, s.payments())
			require.Equal(t, times+1, s.count("SELECT count(DISTINCT note) FROM payments"), "executions")
			require.Equal(t, times+1, s.stored())
			require.Equal(t, 1, s.count("SELECT count(DISTINCT length(body)) FROM idempotency_keys WHERE state = 'completed'"), "no answer was cut off")
			t.Logf("cut mode=%s times=%d while_sending=%d while_receiving=%d between=%d runs=%d executions=%d", mode, times, sending.Load(), receiving.Load(),
				int64(times)-sending.Load()-receiving.Load(),
				s.runs.Load(), s.payments()-1)
		})
	}
}

// cutKey returns a key; all are of one length, and so are bodies and answers.
func cutKey(n int) string { return fmt.Sprintf("key-%06d", n) }

func cutBody(key string) string {
	return fmt.Sprintf(`{"note": "%s", "padding": "%s", "end": true}`, key, strings.Repeat("p", 20_000))
}

// echo keeps a payment for what it was sent, whether that is whole or not, and sends it back.
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

// cut sends a request and closes the connection after so many bytes of both ways.
func (s *service) cut(key string, after int) (e exchanged, err error) {
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
	if rand.IntN(2) == 0 {
		_ = conn.(*net.TCPConn).SetLinger(0) // a reset, and not a goodbye
	}
	e.sent, err = conn.Write(request[:min(after, len(request))])
	if err != nil || after < len(request) {
		return e, err
	}
	if after == len(request) {
		<-time.After(rand.N(5 * time.Millisecond))
		return e, nil
	}
	n, err := io.CopyN(io.Discard, conn, int64(after-e.sent))
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

// insistOn sends the request until it is answered, with what it should be.
func (s *service) insistOn(key string) error {
	end := time.Now().Add(time.Minute)
	for {
		r, err := s.cutRequest(key)
		if err != nil {
			return err
		}
		got, err := send(r)
		switch {
		case err != nil:
			return err
		case got.status == http.StatusConflict && time.Now().Before(end):
			<-time.After(10 * time.Millisecond)
		case got.status != http.StatusCreated || got.body != cutBody(key):
			return fmt.Errorf("%s: %d with %d bytes where there should have been %d: %.200s", key, got.status, len(got.body), len(cutBody(key)), got.body)
		default:
			return nil
		}
	}
}
