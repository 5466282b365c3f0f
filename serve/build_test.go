package serve_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/serve"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Each function of a service that fails is named.
func TestBuild(t *testing.T) {
	db := pgtest.Migrated(t)
	refused := errors.New("no such shop")
	setup := func(context.Context, *oncebox.App) (http.Handler, error) { return nil, nil }
	for says, s := range map[string]serve.Service{
		"":                                {Source: "shop", Setup: setup},
		"Service.Configure: no such shop": {Source: "shop", Setup: setup, Configure: func(*config.Config, *serve.Config) error { return refused }},
		"Service.Setup: no such shop":     {Source: "shop", Setup: func(context.Context, *oncebox.App) (http.Handler, error) { return nil, refused }},
		"Service.Migrate: serve: Tables":  {Source: "shop", Setup: setup, Migrate: serve.Tables("CREATE")},
		"the source is empty":             {Setup: setup},
	} {
		_, requests, err := s.Build(t.Context(), db.DB, nil, config.Config{})
		if says != "" {
			require.ErrorContains(t, err, says)
			continue
		}
		require.NoError(t, err)
		w := httptest.NewRecorder()
		requests.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		require.Equal(t, http.StatusNotFound, w.Code, "a service without requests")
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	}
}
