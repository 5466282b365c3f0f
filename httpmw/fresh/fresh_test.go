package fresh_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/fresh"
	"github.com/oncebox/oncebox/httpmw/httpjson"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/serve"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type reserved struct{}

func (reserved) EventType() string { return "show.reserved" }

const header = "X-Read-Token"

// service counts reservations in a read model.
func service(app *oncebox.App) http.Handler {
	event.Register[reserved](app.Registry)
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, _ reserved) error {
		_, err := app.UoW.DB(ctx).NewRaw("INSERT INTO taken VALUES (1)").Exec(ctx)
		return err
	})
	app.Consume("show", "seats", router)
	once := httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Anyone, &httpmw.IdempotencyConfig{TokenHeader: header})
	count := httpjson.Handler(http.StatusOK, nil, func(r *http.Request, _ httpjson.Nothing) (n int, err error) {
		err = app.UoW.DB(r.Context()).NewRaw("SELECT count(*) FROM taken").Scan(r.Context(), &n)
		return n, err
	})
	mux := http.NewServeMux()
	mux.Handle("POST /reservations", once(httpjson.Handler(http.StatusCreated, nil, func(r *http.Request, _ httpjson.Nothing) (httpjson.Nothing, error) {
		return httpjson.Nothing{}, app.UoW.Do(r.Context(), func(_ context.Context, u *uow.Unit) error { return u.Add("show", reserved{}) })
	})))
	mux.Handle("GET /soon", fresh.Reads(app.Inbox, "seats", header, &fresh.Config{Limit: time.Nanosecond})(count))
	mux.Handle("GET /late", fresh.Reads(app.Inbox, "seats", header, &fresh.Config{Limit: time.Hour})(count))
	return mux
}

func TestReads(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	_, web := oncetest.Serve(t, serve.Service{
		Source: "shop", Migrate: serve.Tables("CREATE TABLE IF NOT EXISTS taken (n int)"),
		Setup: func(_ context.Context, app *oncebox.App) (http.Handler, error) { return service(app), nil },
	})
	token := web.Send("POST", "/reservations", "", "Idempotency-Key", "key-1").Header().Get(header)
	require.NotEmpty(t, token)

	require.Equal(t, "0", web.Send("GET", "/late", "").Body.String(), "without a token it does not wait")
	require.Equal(t, "0", web.Send("GET", "/late", "", header, "no token").Body.String())
	require.Empty(t, log.String())
	require.Equal(t, "0", web.Send("GET", "/soon", "", header, token).Body.String(), "the older state")
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), "consumer=seats")

	require.Equal(t, "1", web.SendAndDrain("GET", "/late", "", header, token).Body.String())
}
