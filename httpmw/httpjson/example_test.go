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

// A reservation that is new has an address, and a repeated one is answered with 200.
func ExampleAnswer() {
	made := map[string]bool{}
	put := func(r *http.Request, in reservation) (httpjson.Answer[reserved], error) {
		id := r.PathValue("id")
		answer := httpjson.Answer[reserved]{Header: http.Header{"Location": {"/reservations/" + id}}, Body: reserved{"hamlet", in.Seats}}
		if made[id] {
			answer.Status = http.StatusOK
		}
		made[id] = true
		return answer, nil
	}
	mux := http.NewServeMux()
	mux.Handle("PUT /reservations/{id}", httpjson.Handler(http.StatusCreated, nil, put))
	for range 2 {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/reservations/r-1", strings.NewReader(`{"seats":2}`)))
		fmt.Println(w.Code, w.Header().Get("Location"), w.Body)
	}
	// Output:
	// 201 /reservations/r-1 {"show":"hamlet","seats":2}
	// 200 /reservations/r-1 {"show":"hamlet","seats":2}
}
