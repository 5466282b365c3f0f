package httpmw_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/uow"
)

func TestManyClientsOneExecution(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(s.pay)
	const clients = 50
	answers := make([]reply, clients)
	var group sync.WaitGroup
	for i := range clients {
		r := s.request("k", `{"amount": 1}`)
		group.Go(func() {
			for {
				got, err := send(r.Clone(r.Context()))
				if err != nil {
					answers[i] = reply{body: err.Error()}
					return
				}
				if got.status != http.StatusConflict {
					answers[i] = got
					return
				}
				if seconds := got.header.Get("Retry-After"); seconds != "1" {
					answers[i] = reply{body: "409 without Retry-After"}
					return
				}
				r.Body, _ = r.GetBody()
			}
		})
	}
	group.Wait()
	replays := 0
	for _, got := range answers {
		require.Equal(t, http.StatusCreated, got.status, got.body)
		require.Equal(t, answers[0].body, got.body)
		if got.header.Get("Idempotent-Replayed") == "true" {
			replays++
		}
	}
	require.Equal(t, clients-1, replays)
	require.EqualValues(t, 1, s.runs.Load())
	require.Equal(t, 1, s.payments())
	require.Equal(t, 1, s.sink.count())
	outcomes := s.counter("oncebox.idempotency.requests")
	require.EqualValues(t, 1, outcomes["executed"])
	require.EqualValues(t, clients-1, outcomes["replayed"])
}

func TestInFlight(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.RetryAfter = 1500 * time.Millisecond
	begun, finish := make(chan struct{}), make(chan struct{})
	s.start(func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-finish
		s.pay(w, r)
	})
	first := make(chan reply, 1)
	r := s.request("k", "{}")
	go func() {
		got, _ := send(r)
		first <- got
	}()
	<-begun
	for _, body := range []string{"{}", `{"another": "body"}`} {
		got := s.post("k", body)
		require.Equal(t, http.StatusConflict, got.status)
		require.Equal(t, "2", got.header.Get("Retry-After"), "whole seconds, rounded up")
		kind, retryable := got.problem(t)
		require.Equal(t, "idempotency-key-in-progress", kind)
		require.True(t, retryable)
	}
	close(finish)
	require.Equal(t, http.StatusCreated, (<-first).status)
	require.Equal(t, "true", s.post("k", "{}").header.Get("Idempotent-Replayed"))
}

// A replay of a key that was seen lately begins no transaction.
func TestReplayCostsNoTransaction(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(s.pay)
	s.post("k", "{}")
	before := s.counter("oncebox.uow.units")
	require.EqualValues(t, 1, before["committed"])
	for range 3 {
		require.Equal(t, "true", s.post("k", "{}").header.Get("Idempotent-Replayed"))
	}
	require.Equal(t, before, s.counter("oncebox.uow.units"))
}

// The handler hides an error of a statement and answers 2xx. Its work is gone, and the client must not believe it.
func TestSwallowedError(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(s *service, h http.Handler) http.Handler{
		"Idempotency": func(s *service, h http.Handler) http.Handler { return s.middleware(h) },
		"UnitOfWork":  func(s *service, h http.Handler) http.Handler { return httpmw.UnitOfWork(s.units)(h) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			broken := true
			s.serve(wrap(s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				tx := s.units.DB(r.Context())
				_, err := tx.ExecContext(r.Context(), "INSERT INTO payments DEFAULT VALUES")
				noError(t, err)
				if broken {
					_, _ = tx.ExecContext(r.Context(), "SELECT 1/0")
				}
				w.Header().Set("X-Handler", "ran")
				w.WriteHeader(http.StatusCreated)
			})))
			got := s.post("k", "{}")
			require.Equal(t, http.StatusServiceUnavailable, got.status)
			kind, retryable := got.problem(t)
			require.Equal(t, "transaction-failed", kind)
			require.True(t, retryable)
			require.Equal(t, "1", got.header.Get("Retry-After"))
			require.Empty(t, got.header.Get("X-Handler"))
			require.Zero(t, s.payments())
			require.Zero(t, s.stored())
			broken = false
			require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
			require.Equal(t, 1, s.payments())
		})
	}
}

// Failures between the handler's answer and COMMIT. Nothing is stored and nothing promised, and the retry is executed.
func TestCommitFails(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		breakIt func(t *testing.T, s *service, r *http.Request)
		repair  func(t *testing.T, s *service)
		kind    string
	}{
		"a constraint is checked at COMMIT": {
			breakIt: func(t *testing.T, s *service, r *http.Request) {
				_, err := s.units.DB(r.Context()).ExecContext(r.Context(), "INSERT INTO invoices (payment) VALUES (-1)")
				noError(t, err)
			},
			kind: "transaction-failed",
		},
		"the connection is lost": {
			breakIt: func(t *testing.T, s *service, r *http.Request) {
				var pid int
				noError(t, s.units.DB(r.Context()).QueryRowContext(r.Context(), "SELECT pg_backend_pid()").Scan(&pid))
				_, err := s.db.ExecContext(r.Context(), "SELECT pg_terminate_backend(?, 10000)", pid)
				noError(t, err)
			},
			kind: "transaction-failed",
		},
		"the events cannot be stored": {
			breakIt: func(_ *testing.T, s *service, _ *http.Request) { s.sink.fail = errors.New("planted") },
			repair:  func(_ *testing.T, s *service) { s.sink.fail = nil },
			kind:    "transaction-failed",
		},
		"the answer to COMMIT is lost": {
			breakIt: func(_ *testing.T, s *service, _ *http.Request) { s.sink.fail = &uow.CommitUnknownError{XID: "1"} },
			repair:  func(_ *testing.T, s *service) { s.sink.fail = nil },
			kind:    "commit-unknown",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.cfg.RunOnce = true
			_, err := s.db.ExecContext(t.Context(), "CREATE TABLE invoices (payment bigint REFERENCES payments DEFERRABLE INITIALLY DEFERRED)")
			require.NoError(t, err)
			s.start(func(w http.ResponseWriter, r *http.Request) {
				if s.runs.Load() == 1 {
					tc.breakIt(t, s, r)
				}
				s.pay(w, r)
				w.WriteHeader(http.StatusCreated) // also if it failed
			})
			got := s.post("k", "{}")
			// A handler that noticed may have answered 500 itself.
			if got.status != http.StatusInternalServerError {
				require.Equal(t, http.StatusServiceUnavailable, got.status)
				kind, retryable := got.problem(t)
				require.Equal(t, tc.kind, kind)
				require.True(t, retryable)
			}
			require.Zero(t, s.payments())
			require.Zero(t, s.stored())
			if tc.repair != nil {
				tc.repair(t, s)
			}
			require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
			require.Equal(t, "true", s.post("k", "{}").header.Get("Idempotent-Replayed"))
			require.Equal(t, 1, s.payments())
			require.EqualValues(t, 2, s.runs.Load())
		})
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		value  any
		answer int // 0: the connection is closed
	}{
		"recovered further out": {"boom", http.StatusInternalServerError},
		"abort":                 {http.ErrAbortHandler, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.serve(middleware.Recoverer(s.middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.pay(w, r)
				if s.runs.Load() == 1 {
					panic(tc.value)
				}
			}))))
			got, err := send(s.request("k", "{}"))
			if tc.answer == 0 {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
				require.Equal(t, tc.answer, got.status)
			}
			require.Zero(t, s.payments())
			require.Zero(t, s.sink.count())
			require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
			require.Equal(t, 1, s.payments())
			require.Equal(t, map[string]int64{"panicked": 1, "executed": 1}, s.counter("oncebox.idempotency.requests"))
		})
	}
}

func TestClientThatGoesAway(t *testing.T) {
	t.Parallel()
	s := newService(t)
	begun, gone, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.runs.Load() == 0 {
			context.AfterFunc(r.Context(), func() { close(gone) }) // the server has noticed
		}
		s.middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			<-gone
			done <- r.Context().Err()
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
	await.True(t, func() bool { return s.stored() == 1 }, "the answer to be stored")
	got := s.post("k", "{}")
	require.Equal(t, http.StatusCreated, got.status)
	require.Equal(t, "true", got.header.Get("Idempotent-Replayed"))
	require.Equal(t, 1, s.payments())
}

func TestWorkHasATimeoutOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newService(t)
	key, got := s.timeOut(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		_, _ = s.insert(context.WithoutCancel(r.Context()))
		w.WriteHeader(http.StatusCreated)
	})
	kind, _ := got.problem(t)
	require.Equal(t, "transaction-failed", kind)
	require.Zero(t, s.payments())
	s.cfg.Wait = 10 * time.Minute // the server may not have noticed the end of the transaction yet
	s.start(s.pay)
	require.Equal(t, http.StatusCreated, s.post(key, "{}").status)
}

// Two requests lock two rows in opposite order. PostgreSQL fails one of them, whose handler answers 500; it is run again
// with the same body, and both clients are served.
func TestDeadlockRunsTheHandlerAgain(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		t.Run(fmt.Sprintf("RunOnce %t", once), func(t *testing.T) {
			s := newService(t)
			s.cfg.RunOnce = once
			_, err := s.db.ExecContext(t.Context(), "INSERT INTO payments (id, note) VALUES (-1, ''), (-2, '')")
			require.NoError(t, err)
			var barrier sync.WaitGroup
			barrier.Add(2)
			answered := make(chan struct{}, 2)
			s.start(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				noError(t, err)
				first := s.runs.Load() <= 2
				if !first {
					<-answered // or it could have its first row back before the other one gets it, and they would do the same again
				}
				err = s.units.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
					for i, id := range strings.Fields(string(body)) {
						if _, err := u.DB().ExecContext(ctx, "UPDATE payments SET note = note || 'x' WHERE id = ?", id); err != nil {
							return err
						}
						if i == 0 && first {
							barrier.Done()
							barrier.Wait()
						}
					}
					return nil
				})
				if err != nil {
					http.Error(w, "sorry", http.StatusInternalServerError)
					return
				}
				w.WriteHeader(http.StatusOK)
			})
			var group sync.WaitGroup
			statuses := make([]int, 2)
			for i, body := range []string{"-1 -2", "-2 -1"} {
				r := s.request(body[:2], body)
				group.Go(func() {
					got, _ := send(r)
					statuses[i] = got.status
					answered <- struct{}{}
				})
			}
			group.Wait()
			if once {
				require.ElementsMatch(t, []int{200, 500}, statuses)
				require.Equal(t, 2, s.count("SELECT sum(length(note)) FROM payments"))
				require.EqualValues(t, 2, s.runs.Load())
				return
			}
			require.Equal(t, []int{200, 200}, statuses)
			require.Equal(t, 4, s.count("SELECT sum(length(note)) FROM payments"))
			require.EqualValues(t, 3, s.runs.Load())
		})
	}
}

// An answer that was made of a conflict is not stored, however it looks and however often the handler was run.
func TestConflictThatStays(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.units = uow.New(s.db.DB, &uow.Config{Retry: uow.RetryConfig{MaxAttempts: 3, Policy: retry.Policy{Delay: time.Microsecond}}})
	s.start(func(w http.ResponseWriter, r *http.Request) {
		err := s.units.Do(r.Context(), func(context.Context, *uow.Unit) error {
			return &uow.ConflictError{Type: "order", ID: "1", Expected: 1, Found: 2}
		})
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	})
	got := s.post("k", "{}")
	require.Equal(t, http.StatusUnprocessableEntity, got.status)
	require.Contains(t, got.body, "expected version 1", "the handler's own answer")
	require.EqualValues(t, 3, s.runs.Load())
	require.Zero(t, s.stored())
}

func TestStoreIsDown(t *testing.T) {
	t.Parallel()
	s := newService(t)
	pool, err := sql.Open("pgx", s.db.DSN)
	require.NoError(t, err)
	require.NoError(t, pool.Close())
	s.units = uow.New(bun.NewDB(pool, pgdialect.New()), &s.unitConfig)
	s.start(s.pay)
	got := s.post("planted-key", "planted-body")
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	kind, retryable := got.problem(t)
	require.Equal(t, "idempotency-store-unavailable", kind)
	require.True(t, retryable)
	require.Equal(t, "1", got.header.Get("Retry-After"))
	require.Zero(t, s.runs.Load(), "fails closed")
	require.Contains(t, s.log.String(), "level=ERROR")
	require.NotContains(t, s.log.String(), "planted")
}

// The look-up after the lock must see what was committed meanwhile, whatever the database's default is.
func TestTransactionIsReadCommitted(t *testing.T) {
	t.Parallel()
	s := newService(t)
	pool, err := sql.Open("pgx", s.db.DSN+"&default_transaction_isolation=serializable")
	require.NoError(t, err)
	defer pool.Close()
	s.units = uow.New(bun.NewDB(pool, pgdialect.New()), nil)
	level := make(chan string, 1)
	s.start(func(w http.ResponseWriter, r *http.Request) {
		var now string
		noError(t, s.units.DB(r.Context()).QueryRowContext(r.Context(), "SHOW transaction_isolation").Scan(&now))
		level <- now
		w.WriteHeader(http.StatusOK)
	})
	require.Equal(t, http.StatusOK, s.post("k", "{}").status)
	require.Equal(t, "read committed", <-level)
}

func TestMissingTable(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.keys = idempotency.NewStore(&idempotency.Config{Schema: "nowhere"})
	s.start(s.pay)
	require.Equal(t, http.StatusServiceUnavailable, s.post("k", "{}").status)
	require.Zero(t, s.runs.Load())
}

// With a single connection, a client that is slow to send or to read must not keep it from others.
func TestSlowClientsHoldNoConnection(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.pool.SetMaxOpenConns(1)
	large := strings.Repeat("x", 15<<20) // more than the buffers of a socket
	s.start(func(w http.ResponseWriter, r *http.Request) {
		s.pay(w, r)
		_, _ = io.WriteString(w, large)
	})

	body, sender := io.Pipe()
	slow := s.request("slow", "")
	slow.Body, slow.ContentLength = body, -1
	answered := make(chan reply, 1)
	go func() {
		got, err := send(slow)
		if err != nil {
			got.body = err.Error()
		}
		answered <- got
	}()
	_, err := sender.Write([]byte("half a bo")) // read by the transport: the request is under way
	require.NoError(t, err)

	transport := &http.Transport{ReadBufferSize: 1}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(s.request("reads-nothing", "{}"))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, http.StatusCreated, resp.StatusCode)

	require.Equal(t, http.StatusCreated, s.post("quick", "{}").status)

	_, err = sender.Write([]byte("dy"))
	require.NoError(t, err)
	require.NoError(t, sender.Close())
	got := <-answered
	require.Equal(t, http.StatusCreated, got.status, got.body)
}

func TestBodyThatEndsEarly(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.middleware(http.HandlerFunc(s.pay))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", io.MultiReader(strings.NewReader("half"), failing{}))
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("X-Principal", "u1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusBadRequest, w.Code)
	kind, retryable := reply{w.Code, w.Header(), w.Body.String()}.problem(t)
	require.Equal(t, "request-body-unreadable", kind)
	require.True(t, retryable)
	require.Zero(t, s.runs.Load())
}

// A body whose announced length is too large is not read at all.
func TestTooLargeBodyIsNotRead(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.MaxBody = 10
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", failing{})
	r.ContentLength = 11
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("X-Principal", "u1")
	w := httptest.NewRecorder()
	s.middleware(http.HandlerFunc(s.pay)).ServeHTTP(w, r)
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// Nothing that identifies a caller, and nothing of a body, gets into logs.
func TestSecretsStayOutOfLogs(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(func(w http.ResponseWriter, r *http.Request) {
		_, _ = s.units.DB(r.Context()).ExecContext(r.Context(), "SELECT 'planted'::int")
		w.Header().Set("Location", "/planted")
		_, _ = io.WriteString(w, "planted")
	})
	got := s.post("planted-key", `"planted"`, header("X-Principal", "planted"), header("Authorization", "planted"))
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	s.post("planted key", `"planted"`)
	require.Contains(t, s.log.String(), "an error was not returned: SQLSTATE 22P02", "operators are told what failed")
	require.NotContains(t, s.log.String(), "planted")
	require.NotContains(t, got.body, "SQLSTATE", "clients are not")
}

var _ uow.CommitSink = (*sink)(nil)
