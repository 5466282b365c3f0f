package httpmwtest

import (
	"net/http"

	"github.com/stretchr/testify/require"
)

// testCallers sends the same key for every caller, in several rounds: no caller gets the answer of another one.
func testCallers(s *session) {
	key := newKey()
	first := make([]reply, len(s.target.Callers))
	for i, caller := range s.target.Callers {
		first[i] = s.executes(s.target.Create.with(caller), key)
	}
	s.distinct(first...)
	for i, caller := range s.target.Callers {
		s.replays(first[i], s.target.Create.with(caller), key)
	}
}

func testRefreshed(s *session) {
	key := newKey()
	s.replays(s.executes(s.target.Create, key), s.target.Create.with(s.target.Refreshed), key)
}

func testNobody(s *session) {
	before := s.effects()
	for range 2 {
		got := s.send(s.target.Create.with(s.target.Nobody), newKey())
		s.refused(got, http.StatusUnauthorized, "idempotency-principal-missing", false)
		require.NotEmpty(s.t, got.header.Get("WWW-Authenticate"), "WWW-Authenticate of a 401")
	}
	s.committed(0, before, "a key of nobody")
}

func testNoTenant(s *session) {
	before := s.effects()
	for range 2 {
		s.refused(s.send(*s.target.NoTenant, newKey()), http.StatusBadRequest, "idempotency-scope-invalid", false)
	}
	s.committed(0, before, "a key without a tenant")
}

func testStranger(s *session) {
	key := newKey()
	first := s.executes(s.target.Create, key)
	got := s.send(s.target.Create.with(s.target.Stranger), key)
	require.Contains(s.t, []int{http.StatusUnauthorized, http.StatusForbidden}, got.status, "a caller without the right may not have its answer: %s", got.body)
	require.NotContains(s.t, got.body, first.body, "a caller without the right has got its answer")
	s.replays(first, s.target.Create, key)
}

func testElsewhere(s *session) {
	key := newKey()
	all := append([]Request{s.target.Create}, s.target.Elsewhere...)
	first := make([]reply, len(all))
	for i, q := range all {
		first[i] = s.executes(q, key)
	}
	s.distinct(first...)
	for i, q := range all {
		s.replays(first[i], q, key)
	}
}
