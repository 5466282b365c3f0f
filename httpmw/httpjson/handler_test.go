package httpjson_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/httpmw/httpjson"
)

type order struct {
	Seats int      `json:"seats"`
	Names []string `json:"names"`
}

type placed struct {
	ID    string  `json:"id"`
	Price float64 `json:"price"`
}

var (
	errSoldOut = errors.New("the show is sold out")
	errAway    = errors.New("the provider is away")
	listed     = httpjson.Errors{http.StatusConflict: {errSoldOut}, http.StatusBadGateway: {errAway}, http.StatusNotFound: {sql.ErrNoRows}}
)

func send(ctx context.Context, h http.Handler, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", body))
	return w
}

// A body that is not what the function takes is refused, and the client reads why.
func TestMalformedBodies(t *testing.T) {
	h := httpjson.Handler(http.StatusCreated, nil, func(_ *http.Request, in order) (placed, error) {
		return placed{ID: fmt.Sprint(in.Seats, in.Names)}, nil
	})
	for body, c := range map[string]struct {
		status int
		says   string
	}{
		`{"seats":2,"names":["a"]}`:  {http.StatusCreated, `{"id":"2 [a]","price":0}`},
		" {} \n":                     {http.StatusCreated, `{"id":"0 []","price":0}`},
		"":                           {http.StatusBadRequest, "The body is empty."},
		`{"seats":"2"}`:              {http.StatusBadRequest, `The member \"seats\" cannot be a JSON string.`},
		`{"seats":2.5}`:              {http.StatusBadRequest, `The member \"seats\" cannot be a JSON number 2.5.`},
		`[]`:                         {http.StatusBadRequest, "The body cannot be a JSON array."},
		`{"seat":2}`:                 {http.StatusBadRequest, `unknown field \"seat\".`},
		`{"seats":2} {}`:             {http.StatusBadRequest, "The body goes on after its JSON value."},
		`{"seats":2}]`:               {http.StatusBadRequest, "The body goes on after its JSON value."},
		`{"seats":`:                  {http.StatusBadRequest, "unexpected EOF."},
		"{\"names\":[\"\xff\"]}":     {http.StatusBadRequest, "The body is not valid UTF-8."},
		strings.Repeat(" ", 1<<20+1): {http.StatusRequestEntityTooLarge, "At most 1048576 bytes are read."},
	} {
		w := send(t.Context(), h, strings.NewReader(body))
		require.Equal(t, c.status, w.Code, body)
		require.Contains(t, w.Body.String(), c.says)
		if c.status != http.StatusCreated {
			require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			require.NotContains(t, w.Body.String(), "order", "a name of Go")
		}
	}
	require.Equal(t, http.StatusBadRequest, send(t.Context(), h, io.MultiReader(strings.NewReader("{"), broken{})).Code)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestErrors(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	gone, leave := context.WithCancel(t.Context())
	leave()
	form := httpmw.Problem{Type: "/p/form", Title: "A show has a title", Status: http.StatusUnprocessableEntity}
	failed := httpmw.Problem{
		Type: "about:blank", Title: "The request failed", Status: http.StatusServiceUnavailable, Detail: "Send it again.", Retryable: true,
	}
	for name, c := range map[string]struct {
		ctx   context.Context
		err   error
		want  httpmw.Problem
		lines int
	}{
		"listed": {t.Context(), fmt.Errorf("show 7 of a secret tenant: %w", errSoldOut),
			httpmw.Problem{Type: "about:blank", Title: "the show is sold out", Status: http.StatusConflict}, 0},
		"no row": {t.Context(), fmt.Errorf("show 7: %w", sql.ErrNoRows),
			httpmw.Problem{Type: "about:blank", Title: "Not Found", Status: http.StatusNotFound}, 0},
		"listed from 500 on": {t.Context(), errAway,
			httpmw.Problem{Type: "about:blank", Title: "the provider is away", Status: http.StatusBadGateway, Retryable: true}, 1},
		"a problem": {t.Context(), fmt.Errorf("wrapped: %w", form), form, 0},
		"a problem without a status": {t.Context(), httpmw.Problem{Title: "Not stored"},
			httpmw.Problem{Type: "about:blank", Title: "Not stored", Status: http.StatusInternalServerError}, 1},
		"unknown": {t.Context(), errors.New("password=secret"),
			failed, 1},
		"the client has gone": {gone, context.Canceled,
			failed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			log.Reset()
			h := httpjson.Handler(http.StatusOK, listed, func(*http.Request, httpjson.Nothing) (placed, error) { return placed{}, c.err })
			w := send(c.ctx, h, strings.NewReader("no JSON, and it is not read"))
			var got httpmw.Problem
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			require.Equal(t, c.want, got)
			require.Equal(t, c.want.Status, w.Code)
			require.NotContains(t, w.Body.String(), "secret")
			require.Equal(t, c.lines, strings.Count(log.String(), "\n"), log.String())
		})
	}
}

func TestAnswers(t *testing.T) {
	none := httpjson.Handler(http.StatusNoContent, nil, func(*http.Request, httpjson.Nothing) (httpjson.Nothing, error) { return httpjson.Nothing{}, nil })
	w := send(t.Context(), none, http.NoBody)
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Empty(t, w.Body.String())
	require.Empty(t, w.Header())

	header := http.Header{"location": {"/orders/1"}, "Link": {"a", "b"}}
	gone := httpjson.Handler(http.StatusOK, nil, func(*http.Request, httpjson.Nothing) (*httpjson.Answer[httpjson.Nothing], error) {
		return &httpjson.Answer[httpjson.Nothing]{Status: http.StatusNoContent, Header: header}, nil
	})
	w = send(t.Context(), gone, http.NoBody)
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Empty(t, w.Body.String())
	require.Equal(t, http.Header{"Location": {"/orders/1"}, "Link": {"a", "b"}}, w.Header())

	nan := httpjson.Handler(http.StatusOK, nil, func(*http.Request, httpjson.Nothing) (httpjson.Answer[placed], error) {
		return httpjson.Answer[placed]{Header: header, Body: placed{Price: math.NaN()}}, nil
	})
	w = send(t.Context(), nan, http.NoBody)
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Empty(t, w.Header().Get("Location"), "nothing was placed")
}
