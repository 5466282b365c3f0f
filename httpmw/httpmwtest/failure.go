package httpmwtest

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// testMaxBody makes the body too large with white space at its end. A service that ignores its limit would execute the request.
func testMaxBody(s *session) {
	before := s.effects()
	sized := func(n int) Request {
		q := s.target.Create
		q.Body += strings.Repeat(" ", n-len(q.Body))
		return q
	}
	s.executes(sized(s.target.MaxBody), newKey())
	// A service that has not read the whole body may close the connection before the client has read the answer. Then the request is sent again.
	refusal := func(q Request) (got reply, err error) {
		ctx, cancel := context.WithTimeout(s.t.Context(), defaultPatience)
		defer cancel()
		for got, err = s.attempt(ctx, q, newKey()); err != nil && ctx.Err() == nil; got, err = s.attempt(ctx, q, newKey()) {
			s.pause()
		}
		return got, err
	}
	for name, q := range map[string]Request{
		"too large":          sized(s.target.MaxBody + 1),
		"too large, chunked": sized(s.target.MaxBody + 1).with(map[string]string{"Transfer-Encoding": "chunked"}),
	} {
		got, err := refusal(q)
		require.NoError(s.t, err, "a body that is %s was not answered", name)
		require.Equal(s.t, http.StatusRequestEntityTooLarge, got.status, "a body that is %s: %s", name, got.body)
		s.refused(got, http.StatusRequestEntityTooLarge, "request-body-too-large", false)
	}
	s.committed(1, before, "one body that fits and two that do not")
}

// testTruncated sends only a part of the body, once with a Content-Length and once in chunks. The service may answer 400 or not at all,
// but it must not execute the request.
func testTruncated(s *session) {
	before := s.effects()
	for name, frame := range map[string]func(body string) string{
		"a length": func(body string) string {
			return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body[:len(body)/2])
		},
		"chunks": func(body string) string {
			return fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(body)/2, body[:len(body)/2])
		},
	} {
		key := newKey()
		status, err := s.truncated(key, frame)
		if err == nil {
			require.Equal(s.t, http.StatusBadRequest, status, "a body with %s that ends too early", name)
		}
		s.replays(s.executes(s.target.Create, key), s.target.Create, key)
	}
	s.committed(2, before, "bodies that end too early, and whole ones")
}

// truncated sends Create over a connection of its own, with a body that ends too early.
func (s *session) truncated(key string, frame func(body string) string) (status int, err error) {
	q := s.target.Create
	at, err := url.Parse(cmp.Or(q.URL, s.target.URL) + q.Path)
	require.NoError(s.t, err, "the URL of the target")
	ctx, cancel := context.WithTimeout(s.t.Context(), defaultPatience)
	defer cancel()
	var conn net.Conn
	if at.Scheme == "https" {
		conn, err = new(tls.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "443")))
	} else {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), "80")))
	}
	require.NoError(s.t, err, "connect")
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var text strings.Builder
	text.WriteString(q.Method + " " + at.RequestURI() + " HTTP/1.1\r\nHost: " + at.Host + "\r\nConnection: close\r\nIdempotency-Key: " + key + "\r\n")
	for name, value := range q.with(map[string]string{contentType: cmp.Or(q.Header[contentType], jsonMedia)}).Header {
		text.WriteString(name + ": " + value + "\r\n")
	}
	if _, err = io.WriteString(conn, text.String()+frame(q.Body)); err != nil {
		return 0, err
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		err = half.CloseWrite()
	}
	if err != nil {
		return 0, err
	}
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return got.StatusCode, got.Body.Close()
}

func testPanics(s *session) {
	key, before := newKey(), s.effects()
	ctx, cancel := context.WithTimeout(s.t.Context(), s.target.Patience)
	defer cancel()
	got, err := s.attempt(ctx, *s.target.Panics, key)
	require.NoError(s.t, ctx.Err(), "a panic was not answered, and the connection stays open")
	if err == nil { // instead of answering, the service may close the connection
		require.Equal(s.t, http.StatusInternalServerError, got.status, "after a panic: %s", got.body)
		require.False(s.t, got.replayed(), "a panic is replayed")
	}
	s.committed(0, before, "a panic")
	s.replays(s.executes(*s.target.Panics, key), *s.target.Panics, key)
	s.committed(1, before, "a panic, and the retry")
}

func testAborts(s *session) {
	key, before := newKey(), s.effects()
	s.refused(s.send(*s.target.Aborts, key), http.StatusServiceUnavailable, "transaction-failed", true)
	s.committed(0, before, "work that could not be committed")
	s.replays(s.executes(*s.target.Aborts, key), *s.target.Aborts, key)
	s.committed(1, before, "work that could not be committed, and the retry")
}

func testConflicts(s *session) {
	key, before := newKey(), s.effects()
	s.replays(s.executes(*s.target.Conflicts, key), *s.target.Conflicts, key)
	s.committed(1, before, "a conflict")
}

// testRunsOnce: the client gets the handler's own answer to the conflict, and the key is free again.
func testRunsOnce(s *session) {
	key, before := newKey(), s.effects()
	first := s.send(*s.target.RunsOnce, key)
	require.GreaterOrEqual(s.t, first.status, http.StatusBadRequest, "the handler was run again after a conflict: %s", first.body)
	s.committed(0, before, "a conflict")
	s.replays(s.executes(*s.target.RunsOnce, key), *s.target.RunsOnce, key)
	s.committed(1, before, "a conflict, and the retry")
}

func testDown(s *session) {
	before := s.effects()
	for range 2 {
		s.refused(s.send(*s.target.Down, newKey()), http.StatusServiceUnavailable, "idempotency-store-unavailable", true)
	}
	s.committed(0, before, "a store that cannot be reached")
}

// leastTTL is the shortest time for which the service keeps the answers of Expires.
const leastTTL = time.Second

func testExpires(s *session) {
	for range s.tries {
		key, began := newKey(), time.Now()
		first := s.executes(*s.target.Expires, key)
		if !s.kept(first, began, key) {
			continue
		}
		next := s.eventually("the end of the answer", func(r reply) bool {
			if r.replayed() {
				began = time.Now() // the next answer is not older than this
			}
			return !r.replayed()
		}, *s.target.Expires, key)
		require.True(s.t, next.success(), "an expired key: %d %s", next.status, next.body)
		s.distinct(first, next)
		if s.kept(next, began, key) {
			return
		}
	}
	require.FailNow(s.t, "the answer had always expired before anybody asked for it")
}

// kept checks that the request gets its first answer again. It returns false if so much time has passed since began that the answer may have expired.
func (s *session) kept(first reply, began time.Time, key string) bool {
	s.t.Helper()
	again := s.send(*s.target.Expires, key)
	if !again.replayed() && time.Since(began) >= leastTTL {
		return false
	}
	requireReplay(s.t, first, again)
	return true
}
