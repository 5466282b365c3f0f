package httpmw_test

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// A body that a middleware further out has read is gone, and must not make two requests look the same.
func TestBodyThatWasReadBefore(t *testing.T) {
	t.Parallel()
	var form bytes.Buffer
	parts := multipart.NewWriter(&form)
	require.NoError(t, parts.WriteField("amount", "10"))
	require.NoError(t, parts.Close())
	parse := func(r *http.Request) { _ = r.FormValue("csrf") }
	drain := func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	stream := func(r *http.Request) {
		_, _ = r.MultipartReader()
		drain(r)
	}
	sniff := func(r *http.Request) { _, _ = io.ReadFull(r.Body, make([]byte, 1)) }
	replace := func(length int64) func(*http.Request) {
		return func(r *http.Request) {
			drain(r)
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("another")), length
		}
	}
	chunked := func(r *http.Request) { r.ContentLength, r.Body = -1, io.NopCloser(r.Body) }
	db := pgtest.Migrated(t)
	for name, tc := range map[string]struct {
		before        func(*http.Request)
		contentType   string
		body, another string
		change        change
		handled       string // what the handler finds
		served        bool
	}{
		"a form": {before: parse, contentType: "application/x-www-form-urlencoded", body: "b=2&amount=10", another: "b=2&amount=1000",
			handled: "10 amount=10&b=2", served: true},
		"a form, in chunks": {before: parse, contentType: "application/x-www-form-urlencoded; charset=utf-8", body: "amount=10", another: "amount=1000",
			change: chunked, handled: "10 amount=10", served: true},
		"a form that nobody has parsed": {before: func(*http.Request) {}, contentType: "application/x-www-form-urlencoded", body: "b=2&amount=10",
			another: "b=2&amount=1000", handled: "10 b=2&amount=10", served: true},
		"not a form": {before: parse, contentType: "application/json", body: `{"amount":10}`, another: `{"amount":1000}`,
			handled: ` {"amount":10}`, served: true},
		"read and put back": {before: func(r *http.Request) {
			body, err := io.ReadAll(r.Body)
			noError(t, err)
			r.Body = io.NopCloser(bytes.NewReader(body))
		}, contentType: "text/plain", body: "10", another: "1000", handled: " 10", served: true},
		"no body":                        {before: drain, contentType: "text/plain", handled: " ", served: true},
		"read":                           {before: drain, contentType: "text/plain", body: "10"},
		"read, and nil":                  {before: func(r *http.Request) { drain(r); r.Body = nil }, contentType: "text/plain", body: "10"},
		"read in part":                   {before: sniff, contentType: "text/plain", body: "10"},
		"replaced":                       {before: replace(2), contentType: "text/plain", body: "10"},
		"replaced, with its length":      {before: replace(7), contentType: "text/plain", body: "10", handled: " another", served: true},
		"replaced, of an unknown length": {before: replace(-1), contentType: "text/plain", body: "10", handled: " another", served: true},
		"files":                          {before: parse, contentType: parts.FormDataContentType(), body: form.String()},
		"files, in chunks":               {before: parse, contentType: parts.FormDataContentType(), body: form.String(), change: chunked},
		"files, in a stream":             {before: stream, contentType: parts.FormDataContentType(), body: form.String()},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServiceOn(t, db)
			once := s.middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := s.insert(r.Context())
				noError(t, err)
				body, err := io.ReadAll(r.Body)
				noError(t, err)
				r.Body = io.NopCloser(bytes.NewReader(body))
				w.WriteHeader(http.StatusCreated)
				_, _ = fmt.Fprint(w, r.PostFormValue("amount"), " ", string(body))
			}))
			s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				tc.before(r)
				once.ServeHTTP(w, r)
			}))
			if tc.change == nil {
				tc.change = func(*http.Request) {}
			}
			post := func(body string) reply { return s.post("k", body, header("Content-Type", tc.contentType), tc.change) }
			first := post(tc.body)
			if !tc.served {
				require.Equal(t, http.StatusInternalServerError, first.status)
				kind, _ := first.problem(t)
				require.Equal(t, "middleware-misplaced", kind)
				require.Contains(t, s.log.String(), "another middleware has read")
				require.Zero(t, s.runs.Load())
				return
			}
			require.Equal(t, http.StatusCreated, first.status)
			require.Equal(t, tc.handled, first.body)
			require.Equal(t, "true", post(tc.body).header.Get("Idempotent-Replayed"))
			if tc.another != "" {
				require.Equal(t, http.StatusUnprocessableEntity, post(tc.another).status)
			}
		})
	}
}

// A unit of work compares nothing, and leaves bodies to its handler as they are.
func TestBodyThatWasReadBeforeAUnitOfWork(t *testing.T) {
	t.Parallel()
	s := newService(t)
	units := httpmw.UnitOfWork(s.units)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.PostFormValue("amount"))
	}))
	s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.FormValue("csrf")
		units.ServeHTTP(w, r)
	}))
	got := s.post("", "amount=10", header("Content-Type", "application/x-www-form-urlencoded"))
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, "10", strings.TrimSpace(got.body))
}
