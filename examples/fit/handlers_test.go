package fit_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/examples/fit/handlers"
	"github.com/oncebox/oncebox/idempotency"
)

func TestHandlers(t *testing.T) {
	for name, app := range map[string]func(handlers.Middleware) http.Handler{"net/http": handlers.NetHTTP, "chi": handlers.Chi} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			db, err := config.UseDB(t.Context(), pool(t, s), config.Config{})
			require.NoError(t, err)
			_, units := parts(db)
			scope := func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous("default"), nil }
			handler := app(handlers.Once(units, idempotency.NewStore(nil), scope))

			deposit := func(key, cents string) *httptest.ResponseRecorder {
				req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/accounts/a/deposits",
					strings.NewReader(url.Values{"cents": {cents}}.Encode()))
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				if key != "" {
					req.Header.Set("Idempotency-Key", key)
				}
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, req)
				return answer
			}
			require.Equal(t, http.StatusCreated, deposit("k1", "5").Code)
			again := deposit("k1", "5")
			require.Equal(t, http.StatusCreated, again.Code)
			require.Equal(t, "true", again.Header().Get("Idempotent-Replayed"))
			require.Equal(t, http.StatusInternalServerError, deposit("k2", "-6").Code, "rolled back")
			require.EqualValues(t, 5, s.cents("a"))
			require.Equal(t, []int64{1}, s.versions("a"))

			require.Equal(t, http.StatusCreated, deposit("", "5").Code, "a request without a key has a unit too")
			require.Equal(t, http.StatusInternalServerError, deposit("", "-16").Code, "rolled back")
			require.EqualValues(t, 10, s.cents("a"))
			require.Equal(t, []int64{1, 2}, s.versions("a"))
		})
	}
}
