package httpmw_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/uow"
)

// afterRollback calls a function once, in the moment in which a transaction was rolled back.
type afterRollback struct{ fn atomic.Pointer[func()] }

func (a *afterRollback) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, afterRollback{}, data.SQL)
}

func (a *afterRollback) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(afterRollback{}) != "rollback" {
		return
	}
	if fn := a.fn.Swap(nil); fn != nil {
		(*fn)()
	}
}

// refuseUntil starts a handler that refuses for want of funds. When that is rolled back, they are there, and gap is called. From then
// on the handler is then.
func refuseUntil(s *service, gap func(), then http.HandlerFunc) {
	var rolledBack afterRollback
	s.watch(&rolledBack)
	var funded atomic.Bool
	s.start(func(w http.ResponseWriter, r *http.Request) {
		if !funded.Load() {
			_, err := s.insert(r.Context()) // which is to be undone
			noError(s.t, err)
			http.Error(w, "no funds", http.StatusUnprocessableEntity)
			return
		}
		then(w, r)
	})
	fn := func() {
		funded.Store(true)
		gap()
	}
	rolledBack.fn.Store(&fn)
}

// The work of a refusal is undone before its answer is stored. In between, a request with the same key may come, find that the
// reason is gone, and pay.
func TestRefusalGivesWayToAnAnswerThatIsStored(t *testing.T) {
	t.Parallel()
	s := newService(t)
	other := make(chan reply, 1)
	refuseUntil(s, func() { other <- s.post("k", `{"a":1}`) }, s.pay)
	first := s.post("k", `{"a":1}`)
	second := <-other
	require.Equal(t, http.StatusCreated, second.status)
	require.Equal(t, second.status, first.status, "all clients that send the key get one answer")
	require.Equal(t, second.body, first.body)
	require.Equal(t, 1, s.payments())
	require.EqualValues(t, 2, s.runs.Load())
}

// The same, but the request in between is not finished when the refusal is stored. Its work cannot be committed then.
func TestRefusalIsTheLastWord(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"at once": 0, "after a while": time.Minute} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.cfg.Wait = wait
			began, end := make(chan struct{}), make(chan struct{})
			goOn := sync.OnceFunc(func() { close(end) })
			other := make(chan reply, 1)
			refuseUntil(s, func() {
				go func() { other <- s.post("k", `{"a":1}`) }()
				<-began
			}, func(w http.ResponseWriter, r *http.Request) {
				close(began)
				<-end
				s.pay(w, r)
			})
			t.Cleanup(goOn) // before that of the server
			first := s.post("k", `{"a":1}`)
			require.Equal(t, http.StatusUnprocessableEntity, first.status)
			require.Equal(t, first.body, s.post("k", `{"a":1}`).body, "also while the other one is at work")
			goOn()
			second := <-other
			if wait == 0 {
				kind, retryable := second.problem(t)
				require.Equal(t, "idempotency-key-in-progress", kind)
				require.True(t, retryable)
				second = s.post("k", `{"a":1}`)
			}
			require.Equal(t, first.status, second.status)
			require.Equal(t, first.body, second.body)
			require.Equal(t, "true", second.header.Get("Idempotent-Replayed"))
			require.Zero(t, s.payments())
			require.Zero(t, s.sink.count())
			require.EqualValues(t, 2, s.runs.Load())
		})
	}
}

// A refusal that could not be stored is not sent: its client would take it for the last word, and the next request with the key may
// pay.
func TestRefusalThatIsNotStoredIsNotSent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		gap       func(s *service) // once the work of the refusal was undone
		kind      string
		retryable bool
	}{
		"the key is used for something else": {
			gap: func(s *service) {
				if got := s.post("k", `{"a":2}`); got.status != http.StatusCreated {
					s.t.Errorf("the other request: %d %s", got.status, got.body)
				}
			},
			kind: "idempotency-key-reused",
		},
		"the key is claimed": { // by a version of the service in which the route has a lease
			gap: func(s *service) {
				scope, err := byHeader(s.request("k", ""))
				noError(s.t, err)
				scope.Method, scope.Path, scope.Key = http.MethodPost, "/payments", "k"
				key, err := s.keys.Key(scope)
				noError(s.t, err)
				_, _, err = s.keys.Claim(context.WithoutCancel(s.t.Context()), s.db.DB, key, idempotency.NewFingerprint("test"))
				noError(s.t, err)
			},
			kind: "idempotency-key-in-progress", retryable: true,
		},
		"the database fails": {
			gap: func(s *service) {
				_, err := s.db.ExecContext(context.WithoutCancel(s.t.Context()), "ALTER TABLE idempotency_keys ADD CONSTRAINT fails CHECK (status <> 422)")
				noError(s.t, err)
			},
			kind: "transaction-failed", retryable: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			refuseUntil(s, func() { tc.gap(s) }, s.pay)
			first := s.post("k", `{"a":1}`)
			require.NotContains(t, first.body, "no funds")
			kind, retryable := first.problem(t)
			require.Equal(t, tc.kind, kind)
			require.Equal(t, tc.retryable, retryable)
		})
	}
}

// counted counts what is sent to the database.
type counted struct{ batches, queries atomic.Int64 }

func (c *counted) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.queries.Add(1)
	return ctx
}
func (*counted) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *counted) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.batches.Add(1)
	return ctx
}
func (*counted) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*counted) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func TestRequestCostsTwoRoundTripsBesideItsHandler(t *testing.T) {
	t.Parallel()
	s := newService(t)
	var sent counted
	s.watch(&sent)
	s.start(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, key := range []string{"warm", "up"} {
		require.Equal(t, http.StatusNoContent, s.post(key, `{}`).status)
	}
	batches, queries := sent.batches.Load(), sent.queries.Load()
	require.Equal(t, http.StatusNoContent, s.post("k", `{}`).status)
	require.EqualValues(t, 2, sent.batches.Load()-batches)
	require.Zero(t, sent.queries.Load()-queries)
}

// Pools that were not opened by config.OpenDB send each statement by itself.
func TestWithAPoolOfAnyKind(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.units = uow.New(s.db.DB, &uow.Config{Source: "test"}, s.sink)
	s.start(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Refuse") != "" {
			_, err := s.insert(r.Context())
			noError(t, err)
			http.Error(w, "no", http.StatusNotFound)
			return
		}
		s.pay(w, r)
	})
	for range 2 {
		require.Equal(t, http.StatusCreated, s.post("paid", `{}`).status)
		require.Equal(t, http.StatusNotFound, s.post("refused", `{}`, header("X-Refuse", "1")).status)
	}
	require.EqualValues(t, 2, s.runs.Load())
	require.Equal(t, 1, s.payments())
	require.Equal(t, 2, s.stored())
}
