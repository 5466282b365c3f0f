package clients

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
)

// reply is an answer that was read to its end.
type reply struct {
	status   int
	body     string
	replayed bool
}

// send sends a request as it was recorded, and reads the answer.
func (s *service) send(raw []byte) reply {
	s.t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(s.t.Context(), "tcp", s.Listener.Addr().String())
	require.NoError(s.t, err)
	defer conn.Close()
	_, err = conn.Write(raw)
	require.NoError(s.t, err)
	in := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(in, nil)
		require.NoError(s.t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(s.t, err)
		require.NoError(s.t, resp.Body.Close())
		if resp.StatusCode != http.StatusContinue {
			return reply{resp.StatusCode, string(body), resp.Header.Get("Idempotent-Replayed") == "true"}
		}
	}
}

// sendBoth wants that two tries are one request.
func (s *service) sendBoth(first, second []byte) {
	s.t.Helper()
	before := s.payments()
	got := s.send(first)
	require.Equal(s.t, http.StatusCreated, got.status, got.body)
	require.False(s.t, got.replayed)
	again := s.send(second)
	require.Equal(s.t, reply{got.status, got.body, true}, again)
	require.Equal(s.t, before+1, s.payments())
}

// Each client gets the answer to its first try, and another request with the same key is refused.
func TestTriesOfRealClients(t *testing.T) {
	s := newService(t, httpmw.IdempotencyConfig{}, passing, always)
	files, err := filepath.Glob("testdata/*.1.http")
	require.NoError(t, err)
	require.Len(t, files, 28)
	anew := 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".1.http")
		t.Run(name, func(t *testing.T) {
			s.t = t
			first, err := os.ReadFile(file)
			require.NoError(t, err)
			second, err := os.ReadFile(filepath.Join("testdata", name+".2.http"))
			require.NoError(t, err)
			if !bytes.Equal(first, second) {
				anew++
			}
			s.sendBoth(first, second)
			if other := bytes.Replace(second, []byte("hello"), []byte("jello"), 1); !bytes.Equal(other, second) {
				require.Equal(t, http.StatusUnprocessableEntity, s.send(other).status)
				return
			}
			require.Equal(t, "requests-gzip", name, "of what is compressed nobody sees the text")
		})
	}
	require.Equal(t, 7, anew, "requests that were made anew for the second try")
}

// What a library, a proxy or another version of the client may change from one try to the next.
//
//nolint:lll // a row is a case
func TestTriesThatDiffer(t *testing.T) {
	s := newService(t, httpmw.IdempotencyConfig{}, passing, always)
	const (
		plain = "Content-Length: 14\r\n\r\n{\"amount\": 10}"
		json  = "Content-Type: application/json\r\n"
		form  = "Content-Type: application/x-www-form-urlencoded\r\n"
		field = "Content-Disposition: form-data; name=\"n\"\r\n\r\n1\r\n"
	)
	multipart := func(boundary string) string {
		body := "--" + boundary + "\r\n" + field + "--" + boundary + "--\r\n"
		return fmt.Sprintf("Content-Type: multipart/form-data; boundary=%s\r\nContent-Length: %d\r\n\r\n%s", boundary, len(body), body)
	}
	for name, c := range map[string]struct{ first, second string }{
		"length, then chunks":       {json + plain, json + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"amo\r\n9\r\nunt\": 10}\r\n0\r\n\r\n"},
		"chunks of other sizes":     {json + "Transfer-Encoding: chunked\r\n\r\ne\r\n{\"amount\": 10}\r\n0\r\n\r\n", json + "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\nd\r\n\"amount\": 10}\r\n0\r\n\r\n"},
		"chunks with a trailer":     {json + plain, json + "Trailer: Digest\r\nTransfer-Encoding: chunked\r\n\r\ne\r\n{\"amount\": 10}\r\n0\r\nDigest: x\r\n\r\n"},
		"headers in another order":  {"Accept: */*\r\n" + json + plain, json + "accept: */*\r\n" + plain},
		"headers in another case":   {json + plain, "content-type: Application/JSON\r\ncontent-length: 14\r\n\r\n{\"amount\": 10}"},
		"another agent":             {"User-Agent: a/1\r\n" + json + plain, "User-Agent: a/2\r\n" + json + plain},
		"a count of tries":          {"X-Retry-Count: 0\r\n" + json + plain, "X-Retry-Count: 1\r\nX-Stainless-Retry-Count: 1\r\nAmz-Sdk-Request: attempt=2; max=3\r\n" + json + plain},
		"another trace":             {"Traceparent: 00-11111111111111111111111111111111-1111111111111111-01\r\n" + json + plain, json + plain},
		"another token":             {"Authorization: Bearer a\r\n" + json + plain, "Authorization: Bearer b\r\n" + json + plain},
		"a digest, added":           {json + plain, "Content-Digest: sha-256=:x:\r\nContent-MD5: x\r\n" + json + plain},
		"another Accept":            {"Accept-Encoding: gzip\r\n" + json + plain, "Accept: */*\r\nAccept-Encoding: br\r\n" + json + plain},
		"JSON with its charset":     {json + plain, "Content-Type: application/json;charset=UTF-8\r\n" + plain},
		"form with its charset":     {form + "Content-Length: 3\r\n\r\na=1", "Content-Type: application/x-www-form-urlencoded; charset=\"utf-8\"\r\nContent-Length: 3\r\n\r\na=1"},
		"spaces as + and %20":       {form + "Content-Length: 5\r\n\r\na=b+c", form + "Content-Length: 7\r\n\r\na=b%20c"},
		"expecting to go on":        {json + plain, "Expect: 100-continue\r\n" + json + plain},
		"closing the connection":    {json + plain, "Connection: close\r\n" + json + plain},
		"another boundary":          {multipart("a"), multipart("----WebKitFormBoundary7MA4YWxkTrZu0gW")},
		"a quoted key":              {json + plain, json + plain},
		"no body, by length":        {"\r\n", "Content-Length: 0\r\n\r\n"},
		"no body, by chunks":        {"Content-Length: 0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		"identity, as an encoding":  {json + plain, "Content-Encoding: identity\r\n" + json + plain},
		"query in another order":    {json + plain, json + plain},
		"through a proxy that adds": {json + plain, "Via: 1.1 p\r\nX-Forwarded-For: 10.0.0.1\r\n" + json + plain},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			key := strings.ReplaceAll(strings.ReplaceAll(name, " ", "-"), ",", "")
			line := func(query, key, rest string) []byte {
				return []byte("POST /payments" + query + " HTTP/1.1\r\nHost: payments\r\nIdempotency-Key: " + key + "\r\n" + rest)
			}
			first, second := line("", key, c.first), line("", key, c.second)
			switch name {
			case "a quoted key":
				second = line("", `"`+key+`"`, c.second)
			case "query in another order":
				first, second = line("?a=1&b=2", key, c.first), line("?b=2&a=%31", key, c.second)
			}
			s.sendBoth(first, second)
		})
	}
}
