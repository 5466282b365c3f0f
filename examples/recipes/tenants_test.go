package recipes_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/recipes"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/oncetest"
)

// Two tenants have a note of the same id, and send it with the same key: each has its own note, event, answer and count.
func TestTenantsDoNotMeet(t *testing.T) {
	var routes http.Handler
	kit := oncetest.New(t, func(s oncetest.Setup) (*oncebox.App, error) {
		app, err := oncebox.New(s.DB, s.Broker, s.Config)
		if err != nil {
			return nil, err
		}
		event.Register[recipes.Noted](app.Registry)
		recipes.CountNotes(app)
		routes = recipes.NoteRoutes(app, httpmw.BearerTokens{"token of acme": "acme", "token of globex": "globex"})
		_, err = s.DB.ExecContext(t.Context(), `
			CREATE TABLE notes (tenant_id text, id text, version bigint NOT NULL, PRIMARY KEY (tenant_id, id));
			CREATE TABLE note_counts (tenant_id text PRIMARY KEY, notes bigint NOT NULL)`)
		return app, err
	})
	post := func(tenant string) (status int, replayed string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/notes/n-1", nil)
		r.Header.Set("Authorization", "Bearer token of "+tenant)
		r.Header.Set("Idempotency-Key", "key-1")
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, r)
		return w.Code, w.Header().Get("Idempotent-Replayed")
	}
	for _, tenant := range []string{"acme", "globex"} {
		status, replayed := post(tenant)
		require.Equal(t, http.StatusCreated, status)
		require.Empty(t, replayed, "the other tenant's answer")
	}
	_, replayed := post("acme")
	require.Equal(t, "true", replayed)
	status, _ := post("")
	require.Equal(t, http.StatusUnauthorized, status, "a token of no tenant")
	kit.Drain()
	for _, tenant := range []string{"acme", "globex"} {
		var notes int
		require.NoError(t, kit.DB.NewRaw("SELECT notes FROM note_counts WHERE tenant_id = ?", tenant).Scan(t.Context(), &notes))
		require.Equal(t, 1, notes)
	}
}
