package httpmwtest

import (
	"compress/gzip"
	"io"
	"strings"

	"github.com/stretchr/testify/require"
)

const (
	gzipped   = "gzip"
	unchanged = "identity"
)

// testCompressed: a client that accepts gzip and a client that does not get the same text, whichever of them was first.
func testCompressed(s *session) {
	before := s.effects()
	for _, order := range [][]string{{gzipped, unchanged, gzipped}, {unchanged, gzipped}} {
		key := newKey()
		first := s.compressed(order[0], key)
		require.False(s.t, first.replayed(), "it was replayed, and should have been executed")
		for _, encoding := range order[1:] {
			requireReplay(s.t, first, s.compressed(encoding, key))
		}
	}
	s.committed(2, before, "two keys, and their retries with another Accept-Encoding")
}

// compressed checks that the answer has this encoding, and returns it decoded.
func (s *session) compressed(encoding, key string) reply {
	s.t.Helper()
	got := s.send(s.target.Compressed.with(map[string]string{"Accept-Encoding": encoding}), key)
	want := ""
	if encoding == gzipped {
		want = gzipped
	}
	require.Equal(s.t, want, got.header.Get("Content-Encoding"), "the encoding of an answer for Accept-Encoding: %s", encoding)
	if want == "" {
		return got
	}
	r, err := gzip.NewReader(strings.NewReader(got.body))
	require.NoError(s.t, err, "the answer says that it is gzip")
	text, err := io.ReadAll(r)
	require.NoError(s.t, err, "the answer says that it is gzip")
	got.body = string(text)
	return got
}
