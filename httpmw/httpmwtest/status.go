package httpmwtest

import (
	"fmt"
	"net/http"

	"github.com/stretchr/testify/require"
)

// frees reports whether an answer with this status frees the key, so that a retry is executed.
func frees(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusConflict,
		http.StatusPreconditionFailed, http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly, http.StatusUpgradeRequired,
		http.StatusPreconditionRequired, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}

// answered sends the request and checks its status.
func (s *session) answered(status int, q Request, key string) reply {
	s.t.Helper()
	got := s.send(q, key)
	require.Equal(s.t, status, got.status, "the target says otherwise: %s", got.body)
	return got
}

func testKept(s *session) {
	for status, q := range s.target.Answers {
		if frees(status) {
			continue
		}
		key := newKey()
		first := s.answered(status, q, key)
		require.False(s.t, first.replayed(), "the first answer says that it is a replay")
		again := s.send(q, key)
		require.True(s.t, again.replayed(), "%d was executed again, and would have been the same", status)
		requireReplay(s.t, first, again)
	}
}

func testFreed(s *session) {
	for status, q := range s.target.Answers {
		if !frees(status) {
			continue
		}
		key := newKey()
		answers := []reply{s.answered(status, q, key), s.answered(status, q, key), s.answered(status, q, key)}
		for _, a := range answers {
			require.False(s.t, a.replayed(), "%d was replayed, and may have been another", status)
		}
		if s.target.Distinct {
			s.distinct(answers...)
		}
	}
}

func testRefusedWork(s *session) {
	for status, q := range s.target.Answers {
		key, before := newKey(), s.effects()
		s.answered(status, q, key)
		s.answered(status, q, key)
		want := 0
		if status < http.StatusBadRequest {
			want = 1
		}
		s.committed(want, before, fmt.Sprintf("a request that is answered %d, and its retry", status))
	}
}

func testKeeps(s *session) {
	key, before := newKey(), s.effects()
	first := s.send(*s.target.Keeps, key)
	require.GreaterOrEqual(s.t, first.status, http.StatusBadRequest, "Keeps says otherwise: %s", first.body)
	require.True(s.t, frees(first.status), "%d is kept by every route", first.status)
	again := s.send(*s.target.Keeps, key)
	require.True(s.t, again.replayed(), "%d was executed again, on a route that keeps it", first.status)
	requireReplay(s.t, first, again)
	s.committed(0, before, "a failure that is kept")
}
