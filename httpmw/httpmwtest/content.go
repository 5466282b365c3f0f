package httpmwtest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"
)

func withQuery(path, query string) string {
	if strings.Contains(path, "?") {
		return path + "&" + query
	}
	return path + "?" + query
}

func testAnotherContent(s *session) {
	key, before := newKey(), s.effects()
	first := s.executes(s.target.Create, key)
	changed := func(change func(*Request)) Request {
		q := s.target.Create
		change(&q)
		return q
	}
	for name, q := range map[string]Request{
		"another body":         changed(func(q *Request) { q.Body = s.target.ChangedBody }),
		"no body":              changed(func(q *Request) { q.Body = "" }),
		"another query":        changed(func(q *Request) { q.Path = withQuery(q.Path, "another=1") }),
		"another content type": s.target.Create.with(map[string]string{contentType: "text/plain"}),
		"If-Match":             s.target.Create.with(map[string]string{"If-Match": `"1"`}),
		"If-None-Match":        s.target.Create.with(map[string]string{"If-None-Match": "*"}),
		"If-Unmodified-Since":  s.target.Create.with(map[string]string{"If-Unmodified-Since": "Sat, 01 Jan 2000 00:00:00 GMT"}),
	} {
		got := s.send(q, key)
		require.Equal(s.t, s.target.ReusedStatus, got.status, "%s under the same key: %s", name, got.body)
		s.reused(got, key, first.body)
	}
	s.replays(first, s.target.Create, key)
	s.committed(1, before, "one content, and others under its key")
}

// testRespelled changes the spelling of a request and not its meaning, as clients and proxies do: JSON with other white space and another order of
// members, the media type in capitals, the query parameters in another order.
func testRespelled(s *session) {
	key := newKey()
	q := s.target.Create
	q.Path = withQuery(q.Path, "a=1&b=2")
	first := s.executes(q, key)

	turned := s.target.Create
	turned.Path = withQuery(turned.Path, "b=2&a=1")
	s.replays(first, turned, key)
	if _, typed := q.Header[contentType]; typed {
		return
	}
	s.replays(first, q.with(map[string]string{contentType: "Application/JSON"}), key)
	q.Body = respell(q.Body)
	s.replays(first, q, key)
}

func testExcluded(s *session) {
	key := newKey()
	first := s.executes(*s.target.Excludes, key)
	q := *s.target.Excludes
	q.Body = s.target.ExcludedBody
	s.replays(first, q, key)
	q.Path = withQuery(q.Path, "another=1")
	s.reused(s.send(q, key), key, first.body)
}

func testVersion(s *session) {
	key, before := newKey(), s.effects()
	first := s.executes(*s.target.Versioned, key)
	s.reused(s.send(s.target.Versioned.with(s.target.OtherVersion), key), key, first.body)
	s.replays(first, *s.target.Versioned, key)
	s.replays(s.executes(s.target.Versioned.with(s.target.OtherVersion), key+"-other"), s.target.Versioned.with(s.target.OtherVersion), key+"-other")
	s.committed(2, before, "two versions, each with its key")
}

// testPrecondition: a client that adds the precondition which was demanded is executed. The precondition is a part of the request from then on.
func testPrecondition(s *session) {
	key, before := newKey(), s.effects()
	s.answered(http.StatusPreconditionRequired, *s.target.Conditional, key)
	whole := s.target.Conditional.with(s.target.Precondition)
	first := s.executes(whole, key)
	s.replays(first, whole, key)
	s.reused(s.send(*s.target.Conditional, key), key, first.body)
	s.committed(1, before, "a request without its precondition, and with it")
}

// respell returns another spelling of the same JSON.
func respell(body string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(body), &members) != nil {
		return body + "\n"
	}
	var out bytes.Buffer
	var names []string
	for name := range members {
		names = append(names, name)
	}
	// The members are written in the reverse of their present order.
	position := func(name string) int { return strings.Index(body, `"`+name+`"`) }
	for i := range names {
		for j := range names[:i] {
			if position(names[j]) < position(names[i]) {
				names[i], names[j] = names[j], names[i]
			}
		}
	}
	out.WriteString("{\n")
	for i, name := range names {
		if i > 0 {
			out.WriteString(" ,\n")
		}
		out.WriteString("  \"" + name + "\" : ")
		_ = json.Indent(&out, members[name], "  ", "\t") // cannot fail: the text was decoded as JSON above
	}
	out.WriteString("\n}\n")
	return out.String()
}
