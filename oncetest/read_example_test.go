package oncetest_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/fresh"
	"github.com/oncebox/oncebox/httpmw/httpjson"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/serve"
	"github.com/oncebox/oncebox/uow"
)

// theatre counts reservations in a read model, and a read with a token waits for it.
func theatre() serve.Service {
	return serve.Service{Source: "theatre", Migrate: serve.Tables("CREATE TABLE IF NOT EXISTS taken (n int)"), Setup: openTheatre}
}

type seatTaken struct{}

func (seatTaken) EventType() string { return "seat.taken" }

func openTheatre(_ context.Context, app *oncebox.App) (http.Handler, error) {
	event.Register[seatTaken](app.Registry)
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, _ seatTaken) error {
		_, err := app.UoW.DB(ctx).NewRaw("INSERT INTO taken VALUES (1)").Exec(ctx)
		return err
	})
	app.Consume("seat", "taken", router)
	once := httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Anyone, &httpmw.IdempotencyConfig{TokenHeader: "X-Read-Token"})
	reads := fresh.Reads(app.Inbox, "taken", "X-Read-Token", &fresh.Config{Limit: time.Hour})
	mux := http.NewServeMux()
	mux.Handle("POST /reservations", once(httpjson.Handler(http.StatusCreated, nil, func(r *http.Request, _ httpjson.Nothing) (httpjson.Nothing, error) {
		return httpjson.Nothing{}, app.UoW.Do(r.Context(), func(_ context.Context, u *uow.Unit) error { return u.Add("seat", seatTaken{}) })
	})))
	mux.Handle("GET /reservations", reads(httpjson.Handler(http.StatusOK, nil, func(r *http.Request, _ httpjson.Nothing) (n int, err error) {
		err = app.UoW.DB(r.Context()).NewRaw("SELECT count(*) FROM taken").Scan(r.Context(), &n)
		return n, err
	})))
	return mux, nil
}

// The read waits until the read model has the reservation. Drain fills the read model meanwhile.
func TestClientSeesItsOwnChange(t *testing.T) {
	_, web := oncetest.Serve(t, theatre())
	token := web.Send("POST", "/reservations", "", "Idempotency-Key", "key-1").Header().Get("X-Read-Token")
	require.Equal(t, "1", web.SendAndDrain("GET", "/reservations", "", "X-Read-Token", token).Body.String())
}
