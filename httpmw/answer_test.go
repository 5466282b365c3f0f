package httpmw_test

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// An answer that was held looks as if it had not been held, and so does its replay.
func TestHeldAnswersLookTheSame(t *testing.T) {
	t.Parallel()
	s := newService(t)
	for name, h := range map[string]http.HandlerFunc{
		"nothing":      func(http.ResponseWriter, *http.Request) {},
		"only a body":  func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>hi") },
		"guessed type": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x89PNG\r\n\x1a\n")) },
		"guessed in pieces": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html"))
			_, _ = w.Write([]byte(">"))
		},
		"empty first": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil); _, _ = w.Write([]byte("<html>")) },
		"no type": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			_, _ = w.Write([]byte("<html>"))
		},
		"encoded": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			_, _ = w.Write([]byte("x"))
		},
		"length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2")
			_, _ = w.Write([]byte("ok"))
		},
		"no content": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNoContent)
			_, err := w.Write([]byte("x"))
			mustBe(err, http.ErrBodyNotAllowed)
		},
		"not modified": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotModified)
			_, err := w.Write([]byte("x"))
			mustBe(err, http.ErrBodyNotAllowed)
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusSeeOther) },
		"error":    func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusUnprocessableEntity) },
		"second status": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			w.WriteHeader(http.StatusBadGateway)
		},
		"header too late": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			w.Header().Set("Location", "/late")
		},
		"type too late": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("{"))
			w.Header().Set("Content-Type", "application/json")
		},
		"header repeated": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("Link", "</a>")
			w.Header().Add("Link", "</b>")
		},
		"header of others": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Del("X-Outer")
			w.Header().Add("Vary", "Accept")
		},
	} {
		t.Run(name, func(t *testing.T) {
			outer := func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("X-Outer", "yes")
					w.Header().Set("Vary", "Origin")
					next.ServeHTTP(w, r)
				})
			}
			s.serve(outer(h))
			want := s.post("", "{}")
			s.serve(outer(httpmw.UnitOfWork(s.units, httpmw.WithEmptyAnswer())(h)))
			s.cfg.EmptyAnswer = true // net/http answers for a handler that is silent
			inUnit := s.post("", "{}")
			s.serve(outer(s.middleware(h)))
			key := strings.ReplaceAll(name, " ", "-")
			first, replay := s.post(key, "{}"), s.post(key, "{}")

			for _, got := range []reply{inUnit, first, replay} {
				require.Equal(t, want.status, got.status)
				require.Equal(t, want.body, got.body)
			}
			for _, got := range []reply{want, inUnit, first, replay} {
				got.header.Del("Date")
			}
			require.Equal(t, want.header, first.header)
			require.Equal(t, want.header, inUnit.header)
			require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"))
			for name, values := range want.header {
				require.Equal(t, values, replay.header.Values(name), name)
			}
		})
	}
}

func mustBe(err, want error) {
	if !errors.Is(err, want) {
		panic(err)
	}
}

// Nothing reaches the client before COMMIT, whatever the handler tries.
func TestHandlerCannotGetAtTheConnection(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(func(w http.ResponseWriter, r *http.Request) {
		_, flusher := w.(http.Flusher)
		_, hijacker := w.(http.Hijacker)
		_, pusher := w.(http.Pusher)
		_, unwraps := w.(interface{ Unwrap() http.ResponseWriter })
		if flusher || hijacker || pusher || unwraps {
			t.Error("the writer offers a way around")
		}

		c := http.NewResponseController(w)
		_, _, err := c.Hijack()
		if !errors.Is(c.Flush(), http.ErrNotSupported) || !errors.Is(err, http.ErrNotSupported) {
			t.Error("Flush or Hijack is supported")
		}
		noError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
		noError(t, c.SetWriteDeadline(time.Now().Add(time.Minute)))
		noError(t, c.EnableFullDuplex())

		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		s.pay(w, r)
	})
	require.Equal(t, http.StatusCreated, s.post("k", "{}").status)
	require.Equal(t, 1, s.payments())
}

func TestInvalidStatusPanics(t *testing.T) {
	t.Parallel()
	s := newService(t)
	h := s.middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1000) }))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", nil)
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("X-Principal", "u1")
	require.Panics(t, func() { h.ServeHTTP(httptest.NewRecorder(), r) })
}

func TestLargeAnswers(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.cfg.MaxAnswer, s.cfg.MaxHeld = 1000, 2000
	s.start(func(w http.ResponseWriter, r *http.Request) {
		_, err := s.insert(r.Context())
		noError(t, err)
		n := map[string]int{"/1000": 1000, "/1001": 1001, "/2000": 2000, "/2001": 2001}[r.URL.Path]
		w.Header().Set("Location", "/payments/1")
		w.WriteHeader(http.StatusAccepted)
		for range n {
			_, _ = io.WriteString(w, "x") // a handler that does not look at errors
		}
	})
	for _, tc := range []struct {
		path       string
		size       int // of the first answer; 0: refused
		replayable bool
	}{
		{"/1000", 1000, true}, {"/1001", 1001, false}, {"/2000", 2000, false}, {"/2001", 0, false},
	} {
		t.Run(tc.path, func(t *testing.T) {
			before := s.payments()
			first, second := s.post("k", "{}", at(tc.path)), s.post("k", "{}", at(tc.path))
			if tc.size == 0 {
				require.Equal(t, http.StatusInternalServerError, first.status)
				kind, retryable := first.problem(t)
				require.Equal(t, "answer-not-held", kind)
				require.False(t, retryable)
				require.Equal(t, before, s.payments(), "rolled back")
				require.Equal(t, first.status, second.status)
				return
			}
			require.Equal(t, http.StatusAccepted, first.status)
			require.Equal(t, strings.Repeat("x", tc.size), first.body)
			require.Equal(t, before+1, s.payments(), "once")
			if tc.replayable {
				require.Equal(t, first.body, second.body)
				return
			}
			require.Equal(t, http.StatusGone, second.status)
			kind, retryable := second.problem(t)
			require.Equal(t, "idempotency-key-not-replayable", kind)
			require.False(t, retryable)
			require.Equal(t, "/payments/1", second.header.Get("Location"))
			require.Contains(t, second.body, `"executed_status":202`)
		})
	}
}

// An answer that is not what the handler meant to send is neither sent nor stored.
func TestAnswersThatCannotBeHeld(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	for name, h := range map[string]http.HandlerFunc{
		"cut off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.CopyN(w, strings.NewReader("half"), 4)
		},
		"longer than announced": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "2")
			_, _ = io.WriteString(w, "longer")
		},
		"trailer announced": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "Digest")
			_, _ = io.WriteString(w, "body")
			w.Header().Set("Digest", "sha-256=")
		},
		"trailer not announced": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "body")
			w.Header().Set(http.TrailerPrefix+"Digest", "sha-256=")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServiceOn(t, db)
			handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := s.insert(r.Context())
				noError(t, err)
				h(w, r)
			})
			for _, mw := range []func(http.Handler) http.Handler{s.middleware, httpmw.UnitOfWork(s.units)} {
				s.serve(mw(handler))
				got := s.post("k", "{}")
				require.Equal(t, http.StatusInternalServerError, got.status)
				kind, _ := got.problem(t)
				require.Equal(t, "answer-not-held", kind)
				require.Zero(t, s.payments())
				require.Zero(t, s.stored())
			}
		})
	}
}

func TestHeaderThatIsNotText(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.start(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/caf\xe9")
		w.Header().Set("ETag", `"1"`)
		w.WriteHeader(http.StatusOK)
	})
	require.Equal(t, "/caf\xe9", s.post("k", "{}").header.Get("Location"))
	replay := s.post("k", "{}")
	require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"))
	require.Empty(t, replay.header.Get("Location"), "rather missing than another one")
	require.Equal(t, `"1"`, replay.header.Get("ETag"))
	require.Contains(t, s.log.String(), "Location")
}

// gzipped compresses answers, and says so before the handler begins, as many middlewares do.
func gzipped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		defer zip.Close()
		next.ServeHTTP(&zipping{w, zip}, r)
	})
}

type zipping struct {
	http.ResponseWriter

	to io.Writer
}

func (z *zipping) Write(p []byte) (int, error) { return z.to.Write(p) }

// Compression further out belongs to each answer anew: its length is not that of the body, and its encoding is not stored.
func TestCompressionFurtherOut(t *testing.T) {
	t.Parallel()
	s := newService(t)
	long := strings.Repeat("x", 1000)
	write := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(long)))
		_, _ = io.WriteString(w, long)
	})
	zip, plain := header("Accept-Encoding", "gzip"), header("Accept-Encoding", "identity")
	same := func(t *testing.T, compressed bool, got reply) {
		t.Helper()
		body := got.body
		if compressed {
			require.Equal(t, []string{"gzip"}, got.header.Values("Content-Encoding"))
			r, err := gzip.NewReader(strings.NewReader(got.body))
			require.NoError(t, err)
			text, err := io.ReadAll(r)
			require.NoError(t, err)
			body = string(text)
		} else {
			require.Empty(t, got.header.Values("Content-Encoding"))
			require.Equal(t, "1000", got.header.Get("Content-Length"))
		}
		require.Equal(t, long, body)
	}

	s.serve(gzipped(httpmw.UnitOfWork(s.units)(write)))
	same(t, true, s.post("", "{}", zip))
	same(t, false, s.post("", "{}", plain))

	s.serve(gzipped(s.middleware(write)))
	same(t, true, s.post("zipped", "{}", zip))
	same(t, true, s.post("zipped", "{}", zip))
	same(t, false, s.post("zipped", "{}", plain))
	same(t, false, s.post("plain", "{}", plain))
	same(t, true, s.post("plain", "{}", zip))
	require.EqualValues(t, 2, s.runs.Load())
}

// An encoding that the handler has made is a part of its answer.
func TestCompressionOfTheHandler(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.serve(s.middleware(gzipped(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }))))
	first, again := s.post("k", "{}", header("Accept-Encoding", "gzip")), s.post("k", "{}", header("Accept-Encoding", "gzip"))
	require.Equal(t, first.body, again.body)
	for _, got := range []reply{first, again} {
		require.Equal(t, "gzip", got.header.Get("Content-Encoding"))
		require.Equal(t, strconv.Itoa(len(first.body)), got.header.Get("Content-Length"))
	}
}
