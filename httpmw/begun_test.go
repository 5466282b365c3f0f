package httpmw_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A recoverer that takes anything written to the innermost writer for sent, as Echo's does, answers nothing, and
// net/http would answer 200.
func TestPanicBehindAnAnswerIsAnswered(t *testing.T) {
	t.Parallel()
	for kind, mount := range kindsOfUnit() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			once := mount(s)
			s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() { _ = recover() }()
				once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					s.runs.Add(1)
					s.pay(w, r)
					panic("planted")
				})).ServeHTTP(&echoLike{ResponseWriter: w}, r)
			}))
			for n := 1; n <= 2; n++ {
				got := s.post("k", "{}")
				require.Equal(t, "answer-not-held", s.kind(got, http.StatusInternalServerError))
				require.EqualValues(t, n, s.runs.Load())
			}
			if kind != "key, lease" {
				require.Zero(t, s.payments())
			}
			require.Zero(t, s.count("SELECT count(*) FROM idempotency_keys WHERE status IS NOT NULL"))
		})
	}
}

// A handler that has kept the writer of a middleware further out, and flushes it, has answered its client 200 before
// anything is committed. Neither the writers of frameworks nor that of net/http can show that, but the client must not
// take the answer for complete.
func TestFlushPastTheMiddlewareIsCut(t *testing.T) {
	t.Parallel()
	writers := map[string]func(http.ResponseWriter) http.ResponseWriter{
		"net/http": func(w http.ResponseWriter) http.ResponseWriter { return w },
		"echo":     func(w http.ResponseWriter) http.ResponseWriter { return &echoLike{ResponseWriter: w} },
		"chi":      func(w http.ResponseWriter) http.ResponseWriter { return &chiLike{ResponseWriter: w} },
	}
	for name, wrap := range writers {
		for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
			for kind, mount := range kindsOfUnit() {
				t.Run(name+"/"+version+"/"+kind, func(t *testing.T) {
					t.Parallel()
					s := newService(t)
					once, flushes := mount(s), true
					server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						outer := wrap(w)
						once(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
							if flushes {
								noError(t, http.NewResponseController(outer).Flush())
							}
						})).ServeHTTP(outer, r)
					}))
					server.EnableHTTP2 = version == "HTTP/2"
					server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
					server.StartTLS()
					t.Cleanup(server.Close)
					s.url = server.URL
					ask := func() (reply, error) {
						return sendOn(server.Client().Transport.(*http.Transport), s.request("k", "{}"))
					}
					_, err := ask()
					require.Error(t, err)
					require.Contains(t, s.log.String(), "from outside of this middleware")
					flushes = false
					got, err := ask()
					require.NoError(t, err)
					require.Equal(t, "answer-not-held", s.kind(got, http.StatusInternalServerError))
				})
			}
		}
	}
}

// Writers of other kinds, such as the writers of tests, get what they got before.
func TestSilenceOnAWriterThatIsNoConnection(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, s.request("k", "{}"))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.JSONEq(t, `{"type": "/problems/answer-not-held", "title": "The service produced no answer that can be sent", "status": 500,
		"detail": "The work was rolled back.", "retryable": false}`, w.Body.String())
	require.Equal(t, len(w.Body.String()), int(w.Result().ContentLength))
}
