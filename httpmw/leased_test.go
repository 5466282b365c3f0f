package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/uow"
)

// newLeased is newService in lease mode.
func newLeased(t *testing.T) *service {
	t.Helper()
	return newLeasedOn(t, pgtest.Migrated(t))
}

// newLeasedOn is newServiceOn in lease mode.
func newLeasedOn(t *testing.T, db *pgtest.DB) *service {
	t.Helper()
	s := newServiceOn(t, db)
	s.cfg.Lease = &httpmw.LeaseConfig{}
	return s
}

// teller is another service that the handler calls. It records the calls.
type teller struct {
	mu    sync.Mutex
	calls []string
}

func (b *teller) called() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.calls, " ")
}

func (b *teller) call(what string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, what)
	return "did " + what, nil
}

func (b *teller) step(ctx context.Context, what string) error {
	_, err := step.Call(ctx, what, func(context.Context, string) (string, error) { return b.call(what) })
	return err
}

func (b *teller) once(ctx context.Context, what string) error {
	_, err := idempotency.StepOnce(ctx, what, func(context.Context) (string, error) { return b.call(what) })
	return err
}

func (s *service) exec(query string) {
	s.t.Helper()
	_, err := s.db.ExecContext(context.WithoutCancel(s.t.Context()), query)
	noError(s.t, err)
}

// endLeases makes it so that the leases have ended without a word from their holders.
func (s *service) endLeases() {
	s.t.Helper()
	s.exec("UPDATE idempotency_keys SET locked_until = clock_timestamp() - interval '1 s' WHERE state = 'claimed'")
}

func (s *service) kind(got reply, status int) string {
	s.t.Helper()
	require.Equal(s.t, status, got.status, got.body)
	kind, _ := got.problem(s.t)
	return kind
}

func TestLeasedRequestRunsOnceAndWithoutATransaction(t *testing.T) {
	t.Parallel()
	for _, pooler := range []bool{false, true} {
		t.Run(fmt.Sprintf("pooler %t", pooler), func(t *testing.T) {
			s := newLeased(t)
			s.keys = idempotency.NewStore(&idempotency.Config{Schema: s.db.Schema, Pooler: pooler})
			if pooler {
				s.units = uow.New(s.db.Pooled(t).DB, &s.unitConfig, s.sink)
			}
			var b teller
			s.start(func(w http.ResponseWriter, r *http.Request) {
				_, within := uow.FromContext(r.Context())
				if within || s.count("SELECT count(*) FROM idempotency_keys WHERE state = 'claimed'") != 1 {
					t.Error("the claim is committed, and there is no transaction")
				}
				noError(t, b.step(r.Context(), "charge"))
				noError(t, b.once(r.Context(), "mail"))
				s.pay(w, r)
			})
			first := s.post("k", "{}")
			require.Equal(t, http.StatusCreated, first.status)
			require.Empty(t, first.header.Get("Idempotent-Replayed"))
			for range 2 {
				again := s.post("k", "{}")
				require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
				require.Equal(t, first.body, again.body)
			}
			require.Equal(t, "idempotency-key-reused", s.kind(s.post("k", `{"another": 1}`), http.StatusUnprocessableEntity))
			require.Equal(t, "charge mail", b.called())
			require.Equal(t, 1, s.payments())
			require.Equal(t, 1, s.sink.count())
			require.Zero(t, s.count("SELECT count(*) FROM idempotency_step"))
			require.Equal(t, map[string]int64{"executed": 1, "replayed": 2, "mismatch": 1}, s.counter("oncebox.idempotency.requests"))
		})
	}
}

func TestLeasedRequestInFlight(t *testing.T) {
	t.Parallel()
	s := newLeased(t)
	s.cfg.RetryAfter = time.Minute
	begun, finish := make(chan struct{}), make(chan struct{})
	s.start(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		s.pay(w, r)
	})
	first := make(chan reply, 1)
	r := s.request("k", "{}")
	go func() {
		got, err := send(r)
		noError(t, err)
		first <- got
	}()
	<-begun
	require.Equal(t, "idempotency-key-reused", s.kind(s.post("k", `{"another": 1}`), http.StatusUnprocessableEntity), "looked at first")
	got := s.post("k", "{}")
	require.Equal(t, "idempotency-key-in-progress", s.kind(got, http.StatusConflict))
	require.Equal(t, "60", got.header.Get("Retry-After"))
	close(finish)
	require.Equal(t, http.StatusCreated, (<-first).status)
	require.EqualValues(t, 1, s.runs.Load())
}

// A client waits as long as the first request has run, and no longer than the lease lasts.
func TestRetryAfterOfALease(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	for name, c := range map[string]struct {
		rest        string
		retryAfter  time.Duration
		least, most string // SQL of seconds, after the answer, with the rest of the lease
	}{
		"just begun":                   {"90 s", time.Hour, "3600", "3600"},
		"runs for ten seconds":         {"80 s", time.Second, "10", "ceil(90 - rest)"},
		"dead, and the lease ends":     {"20 s", time.Second, "ceil(rest)", "20"},
		"the lease ends sooner":        {"20 s", 30 * time.Second, "30", "30"},
		"a longer lease, of a build":   {"200 s", time.Second, "1", "1"},
		"rounded up, not to come soon": {"19.5 s", time.Second, "ceil(rest)", "20"},
	} {
		s := newLeasedOn(t, db)
		s.cfg.RetryAfter = c.retryAfter
		s.start(func(w http.ResponseWriter, r *http.Request) {
			s.exec("UPDATE idempotency_keys SET locked_until = clock_timestamp() + interval '" + c.rest + "'")
			got := s.post("k", "{}")
			const rest = "SELECT (%s)::int FROM (SELECT extract(epoch FROM locked_until - clock_timestamp()) AS rest FROM idempotency_keys) k"
			least, most := s.count(fmt.Sprintf(rest, c.least)), s.count(fmt.Sprintf(rest, c.most))
			after, err := strconv.Atoi(got.header.Get("Retry-After"))
			if err != nil || got.status != http.StatusConflict || after < least || after > most {
				t.Errorf("%s: %d, again after %d, and not %d to %d: %s", name, got.status, after, least, most, got.body)
			}
			s.pay(w, r)
		})
		require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
	}
}

func TestLeasedRequestThatIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newLeased(t)
	s.cfg.Wait = 10 * time.Minute
	s.start(func(w http.ResponseWriter, r *http.Request) {
		noError(t, new(teller).step(r.Context(), "charge"))
		s.pay(w, r)
	})
	var group sync.WaitGroup
	bodies := make([]string, 20)
	for i := range bodies {
		r := s.request("k", "{}")
		group.Go(func() {
			got, err := send(r)
			noError(t, err)
			bodies[i] = got.body
		})
	}
	group.Wait()
	for _, b := range bodies {
		require.Equal(t, bodies[0], b)
	}
	require.EqualValues(t, 1, s.runs.Load())
	require.Equal(t, 1, s.payments())
}

func TestWhatBecomesOfALeasedKey(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	for status, kept := range map[int]bool{200: true, 204: true, 303: true, 404: true, 422: true, 409: false, 429: false, 500: false, 503: false} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			s := newLeasedOn(t, db)
			var b teller
			s.start(func(w http.ResponseWriter, r *http.Request) {
				noError(t, b.step(r.Context(), "charge"))
				if s.runs.Load() > 1 {
					w.WriteHeader(http.StatusCreated)
					return
				}
				w.Header().Set("Location", "/1")
				w.WriteHeader(status)
			})
			require.Equal(t, status, s.post("k", "{}").status)
			if !kept {
				require.Equal(t, 1, s.count("SELECT count(*) FROM idempotency_step"))
				require.Equal(t, "idempotency-key-reused", s.kind(s.post("k", `{"another": 1}`), http.StatusUnprocessableEntity),
					"what was done was done for the first request")
				status = http.StatusCreated
			}
			require.Equal(t, status, s.post("k", "{}").status)
			require.Equal(t, status, s.post("k", "{}").status)
			require.Equal(t, "charge", b.called(), "the next run goes on where the first one ended")
			require.EqualValues(t, map[bool]int{true: 1, false: 2}[kept], s.runs.Load())
		})
	}
}

func TestPanicUnderALease(t *testing.T) {
	t.Parallel()
	s := newLeased(t)
	var b teller
	s.serve(middleware.Recoverer(s.middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		noError(t, b.step(r.Context(), "charge"))
		if s.runs.Load() == 1 {
			panic("boom")
		}
		s.pay(w, r)
	}))))
	require.Equal(t, http.StatusInternalServerError, s.post("k", "{}").status)
	require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
	require.Equal(t, "charge", b.called())
	require.Equal(t, map[string]int64{"panicked": 1, "executed": 1}, s.counter("oncebox.idempotency.requests"))
}

func TestClientThatGoesAwayUnderALease(t *testing.T) {
	t.Parallel()
	s := newLeased(t)
	begun, gone, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.runs.Load() == 0 {
			context.AfterFunc(r.Context(), func() { close(gone) }) // the server has noticed
		}
		s.middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			<-gone
			done <- new(teller).step(r.Context(), "charge")
			s.pay(w, r)
		})).ServeHTTP(w, r)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	_, err := send(s.request("k", "{}").WithContext(ctx))
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, <-done, "the handler goes on")
	await.True(t, func() bool { return s.count("SELECT count(*) FROM idempotency_keys WHERE state = 'completed'") == 1 }, "the answer to be stored")
	require.Equal(t, "true", s.post("k", "{}").header.Get("Idempotent-Replayed"))
	require.Equal(t, 1, s.payments())
}

// The handler's work is stored although its time is over.
func TestTimeoutUnderALease(t *testing.T) {
	t.Parallel()
	s := newLeased(t)
	key, got := s.timeOut(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		w.WriteHeader(http.StatusCreated)
	})
	require.Equal(t, http.StatusCreated, got.status)
	s.start(s.pay)
	require.Equal(t, "true", s.post(key, "{}").header.Get("Idempotent-Replayed"))
}

// A process is suspended in the handler until another one has taken its request over, and then goes on.
func TestLateHandler(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			s := newLeased(t)
			var b teller
			begun, finish := make(chan struct{}), make(chan struct{})
			s.start(func(w http.ResponseWriter, r *http.Request) {
				late := s.runs.Load() == 1
				noError(t, b.step(r.Context(), "charge"))
				if late {
					close(begun)
					<-finish
					if err := b.step(r.Context(), "late"); !errors.Is(err, idempotency.ErrLeaseLost) {
						t.Errorf("the step of the late one: %v", err)
					}
					w.WriteHeader(status)
					return
				}
				s.pay(w, r)
			})
			first := make(chan reply, 1)
			r := s.request("k", "{}")
			go func() {
				got, err := send(r)
				noError(t, err)
				first <- got
			}()
			<-begun
			s.endLeases()
			require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
			close(finish)
			got := <-first
			require.Equal(t, "idempotency-key-in-progress", s.kind(got, http.StatusConflict))
			again := s.post("k", "{}")
			require.Equal(t, http.StatusCreated, again.status)
			require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
			require.Equal(t, "charge late", b.called(), "the fence is the other side's, for a call that was about to be made")
			require.Equal(t, map[string]int64{"executed": 1, "replayed": 1, "lease_lost": 1}, s.counter("oncebox.idempotency.requests"))
		})
	}
}

// The handler was told to end, so the worth of its answer is unknown, even if no other process has taken the request over.
func TestAnswerAfterTheLeaseWasLost(t *testing.T) {
	t.Parallel()
	s := newLeased(t)
	s.start(func(w http.ResponseWriter, r *http.Request) {
		if s.runs.Load() == 1 {
			s.exec("ALTER TABLE idempotency_keys ADD COLUMN before uuid")
			s.exec("UPDATE idempotency_keys SET before = owner, owner = gen_random_uuid()")
			if err := new(teller).step(r.Context(), "charge"); !errors.Is(err, idempotency.ErrLeaseLost) {
				t.Errorf("the step of the late one: %v", err)
			}
			s.exec("UPDATE idempotency_keys SET owner = before")
			w.WriteHeader(http.StatusOK)
			return
		}
		s.pay(w, r)
	})
	require.Equal(t, "idempotency-key-in-progress", s.kind(s.post("k", "{}"), http.StatusConflict))
	require.Equal(t, 1, s.count("SELECT count(*) FROM idempotency_keys WHERE state = 'claimed'"))
	require.Equal(t, http.StatusCreated, s.post("k", "{}").status, "at once: nobody has the lease, however long it would last")
	require.EqualValues(t, 2, s.runs.Load())
}

// begunOnce leaves a step behind whose outcome is unknown.
func begunOnce(s *service, b *teller) {
	s.t.Helper()
	s.serve(middleware.Recoverer(s.middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := idempotency.StepOnce(r.Context(), "pay", func(context.Context) (string, error) {
			if s.runs.Load() == 1 {
				panic("killed")
			}
			return b.call("pay")
		})
		noError(s.t, err)
		s.pay(w, r)
	}))))
	require.Equal(s.t, http.StatusInternalServerError, s.post("k", "{}").status)
}

func TestUnknownStepWithoutARecoverHook(t *testing.T) {
	t.Parallel()
	s := newLeased(t)
	var b teller
	begunOnce(s, &b)
	for range 2 {
		got := s.post("k", "{}")
		require.Equal(t, "idempotency-key-unknown", s.kind(got, http.StatusServiceUnavailable))
		_, retryable := got.problem(t)
		require.False(t, retryable, "it waits for a person")
		require.Empty(t, got.header.Get("Retry-After"))
	}
	require.EqualValues(t, 1, s.runs.Load(), "nothing runs")
	require.EqualValues(t, 2, s.counter("oncebox.idempotency.requests")["unknown"])

	list, err := s.keys.Unknown(t.Context(), s.db.DB, "", 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	resolved, err := s.keys.Resolve(t.Context(), s.db.DB, list[0], idempotency.StepNotDone())
	require.NoError(t, err)
	require.True(t, resolved)
	require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
	require.Equal(t, "pay", b.called())
}

// A key does not become free because its route has no leases any more, and no client that retries can do anything about it.
func TestUnknownStepOnARouteThatBecameAtomic(t *testing.T) {
	t.Parallel()
	s := newLeased(t)
	begunOnce(s, &teller{})
	s.cfg.Lease = nil
	s.start(s.pay)
	for range 2 {
		require.Equal(t, "idempotency-key-unknown", s.kind(s.post("k", "{}"), http.StatusServiceUnavailable))
	}
	require.Equal(t, "idempotency-key-reused", s.kind(s.post("k", `{"cents": 2}`), http.StatusUnprocessableEntity))
	require.EqualValues(t, 1, s.runs.Load(), "nothing runs")
	require.Equal(t, 2, strings.Count(s.log.String(), "requests with this key are refused"))
	require.EqualValues(t, 2, s.counter("oncebox.idempotency.requests")["unknown"])
}

func TestRecoverHook(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	for name, tc := range map[string]struct {
		hook   func() (idempotency.Outcome, error)
		status int
		calls  string
	}{
		"it was done":     {func() (idempotency.Outcome, error) { return idempotency.StepDone("did pay"), nil }, http.StatusCreated, ""},
		"it was not done": {func() (idempotency.Outcome, error) { return idempotency.StepNotDone(), nil }, http.StatusCreated, "pay"},
		"unknown still":   {func() (idempotency.Outcome, error) { return idempotency.Outcome{}, nil }, http.StatusServiceUnavailable, ""},
		"an error":        {func() (idempotency.Outcome, error) { return idempotency.StepNotDone(), io.EOF }, http.StatusServiceUnavailable, ""},
		"a panic":         {func() (idempotency.Outcome, error) { panic("boom") }, http.StatusInternalServerError, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeasedOn(t, db)
			var b teller
			asked := 0
			s.cfg.Lease.Recover = func(ctx context.Context, r *http.Request, u idempotency.Unknown) (idempotency.Outcome, error) {
				asked++
				body, err := io.ReadAll(r.Body)
				noError(t, err)
				if string(body) != "{}" || u.Step != "pay" || u.Tenant != "default" || ctx.Err() != nil {
					t.Errorf("the hook got %q and %+v", body, u)
				}
				return tc.hook()
			}
			begunOnce(s, &b)
			require.Zero(t, asked)
			require.Equal(t, tc.status, s.post("k", "{}").status)
			require.Equal(t, 1, asked)
			require.Equal(t, tc.calls, b.called())
			again := s.post("k", "{}")
			require.Equal(t, tc.status, again.status)
			if tc.status == http.StatusCreated {
				require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
				return
			}
			require.Equal(t, 2, asked, "it is asked with every request")
			require.EqualValues(t, 1, s.runs.Load(), "nothing runs")
		})
	}
}

// However long it takes to ask the other side, nobody else asks or works meanwhile.
func TestLeaseIsRenewedWhileAnOutcomeIsFoundOut(t *testing.T) {
	t.Parallel()
	// Two thirds of the lease are for a machine that pauses. A machine that pauses for longer loses it, as it should.
	for ttl := 1500 * time.Millisecond; !renewedWhileAnOutcomeIsFoundOut(t, ttl); ttl *= 2 {
		require.Less(t, ttl, time.Minute, "not once, however long the lease")
	}
}

// renewedWhileAnOutcomeIsFoundOut returns false if the lease was lost.
func renewedWhileAnOutcomeIsFoundOut(t *testing.T, ttl time.Duration) bool {
	t.Helper()
	s := newLeased(t)
	s.cfg.Lease.TTL = ttl
	lost := false
	s.cfg.Lease.Recover = func(ctx context.Context, _ *http.Request, _ idempotency.Unknown) (idempotency.Outcome, error) {
		s.exec("CREATE TABLE first AS SELECT locked_until FROM idempotency_keys")
		for s.count("SELECT count(*) FROM idempotency_keys k, first f WHERE k.locked_until > f.locked_until") == 0 {
			if lost = ctx.Err() != nil; lost {
				return idempotency.Outcome{}, context.Cause(ctx)
			}
			<-time.After(10 * time.Millisecond) // between two looks
		}
		got := s.post("k", "{}")
		if kind, _ := got.problem(t); kind != "idempotency-key-in-progress" {
			t.Errorf("%d %s", got.status, got.body)
		}
		return idempotency.StepDone("did pay"), nil
	}
	var b teller
	begunOnce(s, &b)
	got := s.post("k", "{}")
	if lost {
		return false
	}
	require.Equal(t, http.StatusCreated, got.status)
	require.Empty(t, b.called())
	return true
}

// A handler that overlooks that a step is unknown does not get away with it.
func TestAnswerInSpiteOfAnUnknownStep(t *testing.T) {
	t.Parallel()
	s := newLeased(t)
	s.start(func(w http.ResponseWriter, r *http.Request) {
		_, err := idempotency.StepOnce(r.Context(), "pay", func(context.Context) (string, error) { return "", io.ErrUnexpectedEOF })
		if !errors.Is(err, idempotency.ErrStepUnknown) {
			t.Errorf("an answer that never came: %v", err)
		}
		w.WriteHeader(http.StatusCreated)
	})
	for range 2 {
		require.Equal(t, "idempotency-key-unknown", s.kind(s.post("k", "{}"), http.StatusServiceUnavailable))
	}
	require.EqualValues(t, 1, s.runs.Load())
}

// The work cannot be undone, so an answer that cannot be kept must not lead to a second run.
func TestAnswersThatAreNotKeptUnderALease(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		first   int
	}{
		"larger than what is stored": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, strings.Repeat("x", 20))
		}, http.StatusCreated},
		"larger than what is held": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, strings.Repeat("x", 200))
		}, http.StatusGone},
		"with trailers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X")
			w.WriteHeader(http.StatusCreated)
		}, http.StatusGone},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLeasedOn(t, db)
			s.cfg.MaxAnswer, s.cfg.MaxHeld = 10, 100
			s.start(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Location", "/1")
				tc.handler(w, r)
			})
			require.Equal(t, tc.first, s.post("k", "{}").status)
			for range 2 {
				got := s.post("k", "{}")
				require.Equal(t, "idempotency-key-not-replayable", s.kind(got, http.StatusGone))
				require.Contains(t, got.body, `"executed_status":201`)
				require.Equal(t, "/1", got.header.Get("Location"))
			}
			require.EqualValues(t, 1, s.runs.Load())
		})
	}
	s := newLeased(t)
	s.cfg.MaxHeld = 10
	s.start(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, strings.Repeat("x", 20))
	})
	for range 2 {
		require.Equal(t, "answer-not-held", s.kind(s.post("k", "{}"), http.StatusInternalServerError))
	}
	require.EqualValues(t, 2, s.runs.Load(), "what failed is run again")
}

func TestAnswerThatCannotBeStoredUnderALease(t *testing.T) {
	t.Parallel()
	s := newLeased(t)
	var b teller
	s.start(func(w http.ResponseWriter, r *http.Request) {
		noError(t, b.step(r.Context(), "charge"))
		if s.runs.Load() == 1 {
			s.exec("ALTER TABLE idempotency_keys ADD CONSTRAINT planted CHECK (state <> 'completed')")
		}
		s.pay(w, r)
	})
	require.Equal(t, "answer-not-stored", s.kind(s.post("k", "{}"), http.StatusServiceUnavailable))
	s.exec("ALTER TABLE idempotency_keys DROP CONSTRAINT planted")
	require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
	require.Equal(t, "charge", b.called())
}

func TestManyLeasedRequestsAtOnce(t *testing.T) {
	t.Parallel()
	s := newLeased(t)
	s.start(s.pay)
	var group sync.WaitGroup
	var created atomic.Int64
	for n := range 60 {
		r := s.request(fmt.Sprintf("k%d", n%3), "{}")
		group.Go(func() {
			got, err := send(r)
			noError(t, err)
			switch got.status {
			case http.StatusCreated:
				created.Add(1)
			case http.StatusConflict:
			default:
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	group.Wait()
	require.GreaterOrEqual(t, created.Load(), int64(3))
	require.Equal(t, 3, s.payments())
	require.EqualValues(t, 3, s.runs.Load())
}

func TestStoreIsDownUnderALease(t *testing.T) {
	t.Parallel()
	s := newLeased(t)
	s.keys = idempotency.NewStore(&idempotency.Config{Schema: "nowhere"})
	s.start(s.pay)
	require.Equal(t, "idempotency-store-unavailable", s.kind(s.post("k", "{}"), http.StatusServiceUnavailable))
	require.Zero(t, s.runs.Load())
}

func TestLeaseConfig(t *testing.T) {
	t.Parallel()
	for _, ttl := range []time.Duration{-1, time.Millisecond} {
		cfg := &httpmw.IdempotencyConfig{Lease: &httpmw.LeaseConfig{TTL: ttl}}
		require.ErrorContains(t, cfg.Validate(), "IdempotencyConfig.Lease.TTL")
	}
	s := newLeased(t)
	s.cfg.Lease.TTL = time.Hour
	s.start(func(w http.ResponseWriter, _ *http.Request) {
		if s.count("SELECT count(*) FROM idempotency_keys WHERE locked_until BETWEEN now() + interval '50 minutes' AND now() + interval '1 hour'") != 1 {
			t.Error("the lease is as long as configured")
		}
		w.WriteHeader(http.StatusOK)
	})
	require.Equal(t, http.StatusOK, s.post("k", "{}").status)
}
