package httpmwtest

import (
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"
)

// testQuoted sends each key once as it is and once as a string of RFC 9651, in both orders: both are the same key.
func testQuoted(s *session) {
	a, b, c := newKey(), newKey(), newKey()+`\b`
	for _, keys := range [][2]string{{a, `"` + a + `"`}, {`"` + b + `"`, b}, {c, `"` + strings.ReplaceAll(c, `\`, `\\`) + `"`}} {
		first := s.executes(s.target.Create, keys[0])
		s.replays(first, s.target.Create, keys[1])
	}
}

func testKeyKinds(s *session) {
	unique := newKey()
	for name, key := range map[string]string{
		"a UUID":                "8e03978e-40d5-43e8-bc93-6894a57f9324",
		"255 characters":        unique + strings.Repeat("k", 255-len(unique)),
		"255 in quotes":         `"` + unique + strings.Repeat("q", 255-len(unique)) + `"`,
		"with a meaning":        "payroll:2025-03/" + unique,
		"all that may be raw":   "!#$%&'()*+-./:;<=>?@[]^_`{|}~" + unique,
		"quoted, with the rest": `"a b,c\"d\\` + unique + `"`,
		"one character":         "k",
	} {
		got := s.send(s.target.Create, key)
		// Earlier runs of the suite may have used the short keys, so a replay is right, too.
		require.True(s.t, got.success(), "%s is a key: %d %s", name, got.status, got.body)
		require.True(s.t, s.send(s.target.Create, key).replayed(), "%s is a key, and this was a retry", name)
	}
}

func testKeyCase(s *session) {
	key := newKey()
	s.distinct(s.executes(s.target.Create, strings.ToLower(key)), s.executes(s.target.Create, strings.ToUpper(key)))
}

// malformedKeys returns header lines, named after their defect. If a line contains a key at all, it contains unique.
func malformedKeys(unique string) map[string][]string {
	long := unique + strings.Repeat("k", 256-len(unique))
	return map[string][]string{
		"empty":                    {""},
		"blank":                    {"  "},
		"empty in quotes":          {`""`},
		"not closed":               {`"` + unique},
		"not opened":               {unique + `"`},
		"longer than its quotes":   {`"` + unique + `"; a=1`},
		"wrongly escaped":          {`"` + unique + `\n"`},
		"on two lines":             {unique, unique},
		"on two lines, one quoted": {unique, `"` + unique + `"`},
		"joined by a proxy":        {unique + ", " + unique},
		"two words":                {unique + " b"},
		"two words with a tab":     {`"` + unique + "\tb" + `"`},
		"not ASCII":                {unique + "\u00fc"},
		"longer than 255":          {long},
		"longer than 255, quoted":  {`"` + long + `"`},
	}
}

func testMalformedKeys(s *session) {
	unique, before := newKey(), s.effects()
	for name, lines := range malformedKeys(unique) {
		got := s.send(s.target.Create, lines...)
		require.Equal(s.t, http.StatusBadRequest, got.status, "a key that is %s: %s", name, got.body)
		s.refused(got, http.StatusBadRequest, "idempotency-key-invalid", false, unique)
	}
	s.committed(0, before, "malformed keys")
}

func testMissingKey(s *session) {
	before := s.effects()
	got := s.send(*s.target.Required)
	s.refused(got, http.StatusBadRequest, "idempotency-key-missing", false)
	require.Contains(s.t, strings.Join(got.header.Values("Link"), ", "), `rel="describedby"`, "Link of a missing key")
	s.committed(0, before, "a missing key")
}

func testOptionalKey(s *session) {
	s.distinct(s.executes(*s.target.Optional), s.executes(*s.target.Optional))
	key := newKey()
	s.replays(s.executes(*s.target.Optional, key), *s.target.Optional, key)
}

// testUntouched sends requests whose methods ignore keys: with malformed keys, and twice with the same key.
func testUntouched(s *session) {
	key := newKey()
	for _, q := range s.target.Untouched {
		var answers []reply
		for _, lines := range [][]string{{key}, {key}, {"a", "b"}, {""}, nil} {
			got := s.send(q, lines...)
			require.Less(s.t, got.status, http.StatusBadRequest, "%s is not concerned with keys: %s", q.Method, got.body)
			require.False(s.t, got.replayed(), "%s is replayed", q.Method)
			answers = append(answers, got)
		}
		if s.target.Distinct && q.Method != http.MethodHead {
			s.distinct(answers...)
		}
	}
}

func testMinKey(s *session) {
	key, before := newKey()[len("conformance-"):], s.effects()
	for len(key) < s.target.MinKey {
		key += key
	}
	key = key[:s.target.MinKey]
	short := key[1:]
	s.refused(s.send(*s.target.LongKeys, short), http.StatusBadRequest, "idempotency-key-invalid", false)
	s.refused(s.send(*s.target.LongKeys, `"`+short+`"`), http.StatusBadRequest, "idempotency-key-invalid", false)
	s.committed(0, before, "a key that is too short")
	s.replays(s.executes(*s.target.LongKeys, key), *s.target.LongKeys, `"`+key+`"`)
}

// testKeyed: with these methods a key works as it does with POST.
func testKeyed(s *session) {
	for _, q := range s.target.Keyed {
		key, before := newKey(), s.effects()
		first := s.send(q, key)
		require.True(s.t, first.success(), "%s should have been executed: %d %s", q.Method, first.status, first.body)
		again := s.send(q, key)
		require.True(s.t, again.replayed(), "%s was executed again", q.Method)
		requireReplay(s.t, first, again)
		changed := q
		changed.Path = withQuery(changed.Path, "another=1")
		s.reused(s.send(changed, key), key)
		s.committed(1, before, q.Method+" and its retry")
	}
}

func testStrict(s *session) {
	key, before := newKey(), s.effects()
	s.refused(s.send(*s.target.Strict, key), http.StatusBadRequest, "idempotency-key-invalid", false, key)
	s.committed(0, before, "a raw key")
	s.replays(s.executes(*s.target.Strict, `"`+key+`"`), *s.target.Strict, `"`+key+`"`)
}
