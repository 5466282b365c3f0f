package httpmw_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/uow"
)

// The unit of the handler is a savepoint of the middleware's, so its own token stays empty. The middleware's names what was
// announced, in the first answer and in each replay.
func TestTokenOfARequest(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.TokenHeader = "Read-Token"
	s.start(s.pay)
	first := s.post(`"a"`, "{}")
	require.Equal(t, http.StatusCreated, first.status, first.body)
	named, err := uow.Token(first.header.Get("Read-Token")).Events()
	require.NoError(t, err)
	require.Len(t, named, 1)
	require.Equal(t, "payment", named[0].Topic)
	var id string
	require.NoError(t, s.db.QueryRow("SELECT id FROM emitted").Scan(&id))
	require.Equal(t, id, named[0].ID, "of the event that was committed, which was emitted once")

	again := s.post(`"a"`, "{}")
	require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	require.Equal(t, first.header.Get("Read-Token"), again.header.Get("Read-Token"))
	require.Equal(t, first.body, again.body)
}

// A handler that passes on another service's header does not make up a token.
func TestTokenOfARequestThatAnnouncesNothing(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusOK, http.StatusUnprocessableEntity} {
		s := newService(t)
		s.cfg.TokenHeader = "Read-Token"
		s.start(func(w http.ResponseWriter, r *http.Request) {
			if status >= http.StatusBadRequest { // what is announced is dropped
				_, err := s.insert(r.Context())
				noError(t, err)
			}
			w.WriteHeader(status)
		})
		for range 2 {
			got := s.post(`"a"`, "{}")
			require.Equal(t, status, got.status)
			require.Empty(t, got.header.Get("Read-Token"))
		}
	}
}

func TestTokenHeaderThatCannotBeReplayed(t *testing.T) {
	for _, name := range []string{"Set-Cookie", "X-*", "a b"} {
		require.ErrorContains(t, (&httpmw.IdempotencyConfig{TokenHeader: name}).Validate(), "TokenHeader", name)
	}
}
