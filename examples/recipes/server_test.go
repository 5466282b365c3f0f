package recipes_test

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/examples/recipes"
	"github.com/oncebox/oncebox/localpg"
)

// The server answers while Pulsar is away, and SIGTERM ends it.
func TestServerUntilSIGTERM(t *testing.T) {
	postgres, err := localpg.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, postgres.Close()) })
	t.Setenv("ONCEBOX_DATABASE_URL", postgres.URL)
	t.Setenv("ONCEBOX_SOURCE", "wallets")
	t.Setenv("ONCEBOX_PULSAR_URL", "pulsar://127.0.0.1:1") // nothing listens there
	cfg, err := config.FromEnv()
	require.NoError(t, err)
	db, err := config.OpenDB(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), tables)
	require.NoError(t, err)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)

	ended := make(chan error, 1)
	go func() { ended <- recipes.Serve(listener, deposits) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+listener.Addr().String()+"/wallets/w", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
	require.Equal(t, 1, waiting(t, db))
	require.NoError(t, syscall.Kill(syscall.Getpid(), syscall.SIGTERM))
	require.NoError(t, <-ended)
}

func deposits(app *oncebox.App) http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("POST /wallets/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := recipes.DepositFirst(r.Context(), app.UoW, r.PathValue("id"), 1); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return routes
}

// waiting counts the events that have not left.
func waiting(t *testing.T, db *bun.DB) (n int) {
	t.Helper()
	require.NoError(t, db.NewRaw("SELECT count(*) FROM outbox_messages WHERE status = 'NEW'").Scan(t.Context(), &n))
	return n
}
