package httpmw_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
)

// edit requires the precondition If-Match, and pays if it names version 2.
func (s *service) edit(w http.ResponseWriter, r *http.Request) {
	switch r.Header.Get("If-Match") {
	case "":
		w.WriteHeader(http.StatusPreconditionRequired)
	case `"2"`:
		s.pay(w, r)
	default:
		w.WriteHeader(http.StatusPreconditionFailed)
	}
}

// A client whose precondition was missing or false adds another one under the same key.
func TestPreconditionThatIsAdded(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(s.edit)
	require.Equal(t, http.StatusPreconditionRequired, s.post("k", "{}").status)
	require.Equal(t, http.StatusPreconditionFailed, s.post("k", "{}", header("If-Match", `"1"`)).status)
	first := s.post("k", "{}", header("If-Match", `"2"`))
	require.Equal(t, http.StatusCreated, first.status)
	require.Empty(t, first.header.Get("Idempotent-Replayed"))
	require.Equal(t, first.body, s.post("k", "{}", header("If-Match", `"2"`)).body)
	require.EqualValues(t, 3, s.runs.Load())
	require.Equal(t, 1, s.payments())
}

// The answer under one precondition is not the answer to a request with another one.
func TestPreconditionsArePartOfTheRequest(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(s.pay)
	first := s.post("k", "{}", header("If-Match", `"1", "2"`))
	require.Equal(t, http.StatusCreated, first.status)
	for name, tc := range map[string]struct {
		change change
		same   bool
	}{
		"none":                    {func(*http.Request) {}, false},
		"another value":           {header("If-Match", `"1"`), false},
		"another precondition":    {header("If-None-Match", `"1", "2"`), false},
		"If-Unmodified-Since":     {header("If-Unmodified-Since", `"1", "2"`), false},
		"the same on two lines":   {header("If-Match", `"1"`, `"2"`), true},
		"ignored: Modified-Since": {func(r *http.Request) { header("If-Match", `"1", "2"`)(r); r.Header.Set("If-Modified-Since", "x") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.post("k", "{}", tc.change)
			if tc.same {
				require.Equal(t, first.body, got.body)
				return
			}
			require.Equal(t, http.StatusUnprocessableEntity, got.status)
		})
	}
	require.Equal(t, 1, s.payments())
}

// In lease mode a key stays that of its request.
func TestPreconditionThatIsAddedUnderALease(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.Lease = &httpmw.LeaseConfig{}
	s.start(s.edit)
	require.Equal(t, http.StatusPreconditionRequired, s.post("k", "{}").status)
	require.Equal(t, http.StatusUnprocessableEntity, s.post("k", "{}", header("If-Match", `"2"`)).status)
	require.Equal(t, http.StatusPreconditionRequired, s.post("k", "{}").status, "it is executed again")
	require.Equal(t, http.StatusCreated, s.post("k2", "{}", header("If-Match", `"2"`)).status)
}
