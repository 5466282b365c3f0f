package httpjson_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/httpjson"
)

var errNoShow = errors.New("there is no such show")

type reservation struct {
	Seats int `json:"seats"`
}

type reserved struct {
	Show  string `json:"show"`
	Seats int    `json:"seats"`
}

// reserve is what a request does. The path is in the request, as the router has put it there.
func reserve(r *http.Request, in reservation) (reserved, error) {
	switch {
	case in.Seats < 1:
		return reserved{}, httpmw.Problem{Status: http.StatusUnprocessableEntity, Title: "A reservation has seats"}
	case r.PathValue("id") != "hamlet":
		return reserved{}, errNoShow
	}
	return reserved{r.PathValue("id"), in.Seats}, nil
}

func ExampleHandler() {
	refusals := httpjson.Errors{http.StatusNotFound: {errNoShow}}
	h := httpjson.Handler(http.StatusCreated, refusals, reserve)

	mux := http.NewServeMux()
	mux.Handle("POST /shows/{id}/reservations", h) // under once, if the service has keys
	routes := chi.NewRouter()
	routes.Method(http.MethodPost, "/shows/{id}/reservations", h)

	for _, router := range []http.Handler{mux, routes} {
		for _, ask := range [][2]string{{"hamlet", `{"seats":2}`}, {"hamlet", `{"seat":2}`}, {"lear", `{"seats":2}`}, {"hamlet", `{}`}} {
			w := httptest.NewRecorder()
			router.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/shows/"+ask[0]+"/reservations", strings.NewReader(ask[1])))
			fmt.Println(w.Code)
		}
	}
	// Output:
	// 201
	// 400
	// 404
	// 422
	// 201
	// 400
	// 404
	// 422
}
