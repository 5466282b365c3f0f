package httpmwtest

import (
	"net/http"

	"github.com/stretchr/testify/require"
)

// storedHeaders lists the headers that the answers of a service under test must replay. Rich must send every one of them, so a new name fails the
// suites of all services whose Rich lacks it. They are those of httpmw.StoredHeaders that a standard of HTTP defines for answers: a 405 must have
// Allow, for example (RFC 9110, section 15.5.6). The suite has a list of its own, so that it also tests other implementations.
func storedHeaders() []string {
	return []string{
		"Accept", "Accept-Patch", "Accept-Post", "Allow", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language",
		"Content-Location", contentType, "Etag", "Expires", "Last-Modified", "Link", "Location", "Preference-Applied", "Repr-Digest", "Vary",
	}
}

func testRetry(s *session) {
	key, before := newKey(), s.effects()
	first := s.executes(s.target.Create, key)
	for range 3 {
		again := s.replays(first, s.target.Create, key)
		for _, name := range storedHeaders() {
			require.Equal(s.t, first.header.Values(name), again.header.Values(name), "%s of the retry", name)
		}
	}
	s.committed(1, before, "one request and three retries")
	s.distinct(first, s.executes(s.target.Create, newKey()))
}

func testReplayedHeader(s *session) {
	key := newKey()
	first := s.executes(s.target.Create, key) // executes fails if the first answer claims to be a replay
	s.replays(first, s.target.Create, key)
	if s.target.Rich != nil {
		require.False(s.t, s.send(*s.target.Rich, newKey()).replayed(), "an answer says that it is a replay, because its handler says so")
	}
	changed := s.target.Create
	changed.Body = s.target.ChangedBody
	require.False(s.t, s.send(changed, key).replayed(), "a refusal says that it is a replay")
	require.False(s.t, s.send(s.target.Create, "not closed\"").replayed(), "a refusal says that it is a replay")
}

func testStoredHeaders(s *session) {
	key := newKey()
	first := s.send(*s.target.Rich, key)
	again := s.replays(first, *s.target.Rich, key)
	for _, name := range storedHeaders() {
		require.NotEmpty(s.t, first.header.Values(name), "Rich is answered without %s", name)
		require.Equal(s.t, first.header.Values(name), again.header.Values(name), "%s of the retry", name)
	}
}

func testExtraHeaders(s *session) {
	key := newKey()
	first := s.send(*s.target.Extra, key)
	again := s.replays(first, *s.target.Extra, key)
	for _, name := range s.target.ExtraHeaders {
		require.NotEmpty(s.t, first.header.Values(name), "Extra is answered without %s", name)
		require.Equal(s.t, first.header.Values(name), again.header.Values(name), "%s of the retry", name)
	}
}

// testPlainJSON: a client that accepts application/json and not application/problem+json gets the same problem as application/json.
func testPlainJSON(s *session) {
	const problems = "application/problem+json"
	for accept, media := range map[string]string{
		jsonMedia: jsonMedia, problems: problems, problems + ", " + jsonMedia: problems, "*/*": problems,
	} {
		got := s.send(s.target.Create.with(map[string]string{"Accept": accept}), `"not closed`)
		require.Equal(s.t, media, got.header.Get(contentType), "the content type of a refusal for Accept: %s", accept)
		s.problem(got, media, http.StatusBadRequest, "idempotency-key-invalid", false)
	}
}

// testUnstoredHeaders: these headers of the first answer must not be repeated. Of Date a client can only see that there is one, because
// its value differs anyway.
func testUnstoredHeaders(s *session) {
	key := newKey()
	first := s.send(*s.target.Rich, key)
	again := s.replays(first, *s.target.Rich, key)
	for _, name := range []string{"Set-Cookie", "Www-Authenticate", "X-Request-Id"} {
		require.NotEmpty(s.t, first.header.Values(name), "Rich is answered without %s", name)
		require.NotEqual(s.t, first.header.Values(name), again.header.Values(name), "%s is of the first answer only", name)
	}
	require.Len(s.t, again.header.Values("Date"), 1, "Date of the retry")
}

func testLarge(s *session) {
	key, before := newKey(), s.effects()
	first := s.send(*s.target.Large, key)
	require.True(s.t, first.success(), "the first client gets the whole answer: %d %.200s", first.status, first.body)
	for range 2 {
		again := s.send(*s.target.Large, key)
		s.refused(again, http.StatusGone, "idempotency-key-not-replayable", false)
		require.Equal(s.t, first.header.Get("Location"), again.header.Get("Location"), "Location says what was made")
		require.NotEmpty(s.t, again.header.Get("Location"), "Large is answered without Location")
	}
	s.committed(1, before, "one request with a large answer and two retries")
}

func testNotHeld(s *session) {
	for _, q := range s.target.NotHeld {
		key, before := newKey(), s.effects()
		for range 2 { // the second request is executed, too, because the first has freed the key
			got := s.send(q, key)
			s.refused(got, http.StatusInternalServerError, "answer-not-held", false)
		}
		s.committed(0, before, "what is answered "+q.Path)
	}
}
