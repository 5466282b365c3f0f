package httpmw_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/uow"
)

func TestUnitOfWorkFollowsTheAnswer(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	for path, want := range map[string]struct{ status, rows int }{
		"/200": {200, 1}, "/303": {303, 1}, "/400": {400, 0}, "/409": {409, 0}, "/500": {500, 0},
	} {
		t.Run(path, func(t *testing.T) {
			s := newServiceOn(t, db)
			s.serve(httpmw.UnitOfWork(s.units)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := s.insert(r.Context())
				noError(t, err)
				if s.payments() > 0 {
					t.Error("others see it before COMMIT")
				}
				w.WriteHeader(want.status)
				_, _ = io.WriteString(w, "answer")
			})))
			got := s.post("", "{}")
			require.Equal(t, want.status, got.status)
			require.Equal(t, "answer", got.body)
			require.Equal(t, want.rows, s.payments())
			require.Equal(t, want.rows, s.sink.count())
		})
	}
}

func TestUnitOfWorkPanic(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.serve(httpmw.UnitOfWork(s.units)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.pay(w, r)
		panic(http.ErrAbortHandler)
	})))
	_, err := send(s.request("", "{}"))
	require.Error(t, err)
	require.Zero(t, s.payments())
}

func TestUnitOfWorkRunsAgainAfterAConflict(t *testing.T) {
	t.Parallel()
	s := newService(t)
	runs := 0
	s.serve(httpmw.UnitOfWork(s.units)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		body, err := io.ReadAll(r.Body)
		noError(t, err)
		if runs == 1 {
			_ = s.units.Do(r.Context(), func(context.Context, *uow.Unit) error { return uow.ErrConflict })
			http.Error(w, "conflict", http.StatusConflict)
			return
		}
		_, _ = w.Write(body)
	})))
	got := s.post("", "the body")
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, "the body", got.body)
	require.Equal(t, 2, runs)
}

func TestUnitOfWorkRefusesWhatItCannotHold(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.serve(httpmw.UnitOfWork(s.units)(http.HandlerFunc(s.pay)))
	got := s.post("", strings.Repeat("x", httpmw.DefaultMaxBody+1))
	require.Equal(t, http.StatusRequestEntityTooLarge, got.status)
	kind, _ := got.problem(t)
	require.Equal(t, "request-body-too-large", kind)
	require.Zero(t, s.payments())
	require.Equal(t, http.StatusCreated, s.post("", strings.Repeat("x", httpmw.DefaultMaxBody)).status)
}

func TestUnitOfWorkCommitUnknown(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.sink.fail = &uow.CommitUnknownError{XID: "1"}
	s.serve(httpmw.UnitOfWork(s.units)(http.HandlerFunc(s.pay)))
	got := s.post("", "{}")
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	kind, retryable := got.problem(t)
	require.Equal(t, "commit-unknown", kind)
	require.False(t, retryable, "without a key it might be done twice")
}

func TestUnitOfWorkWithinIdempotency(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.serve(s.middleware(httpmw.UnitOfWork(s.units)(http.HandlerFunc(s.pay))))
	first, second := s.post("k", "{}"), s.post("k", "{}")
	require.Equal(t, http.StatusCreated, first.status)
	require.Equal(t, first.body, second.body)
	require.Equal(t, 1, s.payments())
}

func TestUnitOfWorkPutsTheTokenIntoTheAnswer(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.serve(httpmw.UnitOfWork(s.units, httpmw.WithTokenHeader("Read-Token"))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Read-Token", "somebody else's")
		s.pay(w, r)
	})))
	got := s.post("", "{}")
	require.Equal(t, http.StatusCreated, got.status)
	named, err := uow.Token(got.header.Get("Read-Token")).Events()
	require.NoError(t, err)
	require.Len(t, named, 1)
	require.Equal(t, "payment", named[0].Topic)

	s.serve(httpmw.UnitOfWork(s.units, httpmw.WithTokenHeader("Read-Token"))(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Read-Token", "somebody else's")
	})))
	require.Empty(t, s.post("", "{}").header.Values("Read-Token"), "nothing was announced")
	require.PanicsWithValue(t, `httpmw: WithTokenHeader: "a b" is not a valid name of a header`, func() { httpmw.WithTokenHeader("a b") })
}

func TestUnitOfWorkLogsAHandlerThatHasNotUsedItsUnit(t *testing.T) {
	t.Parallel()
	s := newService(t)
	uses := false
	s.serve(httpmw.UnitOfWork(s.units)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if uses {
			_, err := s.insert(r.Context())
			noError(t, err)
		}
		w.WriteHeader(http.StatusNoContent)
	})))
	get := s.request("", "")
	get.Method = http.MethodGet
	_, err := send(get)
	require.NoError(t, err)
	require.NotContains(t, s.log.String(), unused, "a handler that reads")
	uses = true
	s.post("", "{}")
	require.NotContains(t, s.log.String(), unused)
	uses = false
	s.post("", "{}")
	s.post("", "{}")
	require.Equal(t, 1, strings.Count(s.log.String(), unused), "once for the route")
	require.Contains(t, s.log.String(), "use uow.MustFromContext(r.Context()), or mount it without httpmw.UnitOfWork")
}
