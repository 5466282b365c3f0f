package httpmwtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	contentType = "Content-Type"
	jsonMedia   = "application/json"
)

// defaultPatience is the default of [Target.Patience], and the limit for each answer. It is long, because a slow service is not a broken one.
const defaultPatience = 30 * time.Second

// tester has the methods of [testing.T] that a case needs. The suite's own tests use another implementation, to see cases fail.
type tester interface {
	require.TestingT
	Helper()
	Cleanup(fn func())
	Context() context.Context
}

// session is one run of one case.
type session struct {
	t      tester
	target Target
	client *http.Transport
	// flights counts the keys that fly has used. Each must be executed exactly once, also if no second client met it in flight.
	flights int
}

func open(t tester, target Target) *session {
	s := &session{t: t, target: target, client: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100}}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

// newKey returns a key that nobody has used.
func newKey() string { return "conformance-" + rand.Text() }

// reply is an answer whose body was read completely.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) replayed() bool { return len(r.header.Values("Idempotent-Replayed")) > 0 }

func (r reply) success() bool { return r.status >= 200 && r.status < 300 }

// attempt sends the request once, without redirects and retries.
func (s *session) attempt(ctx context.Context, q Request, lines ...string) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, cmp.Or(q.Method, http.MethodPost), cmp.Or(q.URL, s.target.URL)+q.Path, io.NopCloser(strings.NewReader(q.Body)))
	if err != nil {
		return reply{}, err
	}
	if r.ContentLength = int64(len(q.Body)); r.ContentLength == 0 {
		r.Body = http.NoBody
	}
	r.Header.Set(contentType, jsonMedia)
	for name, value := range q.Header {
		r.Header.Set(name, value)
	}
	if r.Header.Get("Transfer-Encoding") == "chunked" {
		r.Header.Del("Transfer-Encoding")
		r.ContentLength = -1
	}
	if len(lines) > 0 {
		r.Header["Idempotency-Key"] = lines
	}
	resp, err := s.client.RoundTrip(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

// send sends a request and fails the test if there is no answer.
func (s *session) send(q Request, lines ...string) reply {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), defaultPatience)
	defer cancel()
	got, err := s.attempt(ctx, q, lines...)
	require.NoError(s.t, err, "%s %s was not answered", q.Method, q.Path)
	return got
}

// executes sends the request and checks that it was executed, and not replayed.
func (s *session) executes(q Request, lines ...string) reply {
	s.t.Helper()
	got := s.send(q, lines...)
	require.True(s.t, got.success(), "it should have been executed: %d %s", got.status, got.body)
	require.False(s.t, got.replayed(), "it was replayed, and should have been executed")
	return got
}

// replays sends the request and checks that it got the answer first again.
func (s *session) replays(first reply, q Request, lines ...string) reply {
	s.t.Helper()
	again := s.send(q, lines...)
	requireReplay(s.t, first, again)
	return again
}

func requireReplay(t tester, first, again reply) {
	t.Helper()
	require.Equal(t, first.status, again.status, "the retry's status is not the first one's: %s", again.body)
	require.Equal(t, first.body, again.body, "the retry's body is not the first one's: it was executed again, or changed")
	require.Equal(t, []string{"true"}, again.header.Values("Idempotent-Replayed"), "a replay does not say that it is one")
}

// distinct checks that the answers come from different executions.
func (s *session) distinct(answers ...reply) {
	s.t.Helper()
	seen := map[string]bool{}
	for _, a := range answers {
		require.False(s.t, seen[a.body], "two executions have one answer: %s", a.body)
		seen[a.body] = true
	}
}

// reused checks that the answer is the problem of a key that was used with another request.
func (s *session) reused(got reply, secrets ...string) {
	s.t.Helper()
	s.refused(got, s.target.ReusedStatus, "idempotency-key-reused", false, secrets...)
}

// refused checks that the answer is a well-formed problem of this kind and contains none of the secrets.
func (s *session) refused(got reply, status int, kind string, retryable bool, secrets ...string) {
	s.t.Helper()
	s.problem(got, "application/problem+json", status, kind, retryable)
	if retryable {
		require.Regexp(s.t, `^[1-9][0-9]*$`, got.header.Get("Retry-After"), "Retry-After of a problem that is retryable")
	}
	for _, secret := range secrets {
		require.NotContains(s.t, got.body, secret, "the problem repeats what it should not")
	}
}

// problem checks that the answer is a problem with this media type, status and kind, and has all required members.
func (s *session) problem(got reply, media string, status int, kind string, retryable bool) {
	s.t.Helper()
	require.Equal(s.t, status, got.status, "the status of the refusal: %s", got.body)
	require.Equal(s.t, media, got.header.Get(contentType), "the content type of the refusal")
	require.False(s.t, got.replayed(), "a refusal says that it is a replay")
	var p struct {
		Type      string `json:"type"`
		Title     string `json:"title"`
		Status    int    `json:"status"`
		Retryable *bool  `json:"retryable"`
	}
	require.NoError(s.t, json.Unmarshal([]byte(got.body), &p), "the problem is not JSON: %s", got.body)
	require.Equal(s.t, s.target.ProblemBase+kind, p.Type, "the problem's type")
	require.NotEmpty(s.t, p.Title, "the problem has no title")
	require.Equal(s.t, status, p.Status, "the problem's status")
	require.NotNil(s.t, p.Retryable, "the problem does not say whether it is retryable")
	require.Equal(s.t, retryable, *p.Retryable, "whether the problem is retryable")
}

// eventually sends the request again and again until done accepts the answer, at most for the target's patience.
func (s *session) eventually(what string, done func(reply) bool, q Request, lines ...string) reply {
	s.t.Helper()
	end := time.Now().Add(s.target.Patience)
	for {
		got := s.send(q, lines...)
		if done(got) {
			return got
		}
		require.True(s.t, time.Now().Before(end), "%s never came true, but: %d %s", what, got.status, got.body)
		s.pause()
	}
}

// tries yields until the target's patience is over, but at least ten times, because a case may miss a short moment.
func (s *session) tries(yield func(int) bool) {
	end := time.Now().Add(s.target.Patience)
	for n := 0; n < 10 || time.Now().Before(end); n++ {
		if !yield(n) {
			return
		}
	}
}

func (s *session) pause() {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-s.t.Context().Done():
	}
}

// effects returns the number of committed executions, 0 if the target does not count them.
func (s *session) effects() int {
	s.t.Helper()
	if s.target.Effects == nil {
		if s.target.EffectsAt == nil {
			return 0
		}
		return s.target.EffectsAt.ask(s)
	}
	n, err := s.target.Effects()
	require.NoError(s.t, err, "count the effects")
	return n
}

// committed checks how many executions were committed since there were before of them.
func (s *session) committed(want, before int, what string) {
	s.t.Helper()
	if s.target.counts() {
		require.Equal(s.t, want, s.effects()-before, "committed executions: %s", what)
	}
}
