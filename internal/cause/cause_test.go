package cause_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/cause"
)

// Errors that differ only in what varies have one cause.
func TestErrorsWithOneCause(t *testing.T) {
	t.Parallel()
	for _, same := range [][]string{
		{"order 1 is unknown", "order 77 is unknown"},
		{"no order 0193b2c4-6a1e-7c3d-9e58-1f2a3b4c5d6e", "no order 0193B2C4-6A1E-7C3D-9E58-1F2A3B4C5D6F"},
		{"no order 01ARZ3NDEKTSV4RRFFQ69G5FAV", "no order 01BX5ZZKBKACTAV9WEVGEMMVRZ"},
		{"checksum 9f86d081884c7d65 differs", "checksum a0b1c2d3e4f50617 differs", "checksum 1234567812345678 differs"},
		{`no customer "ann"`, `no customer "bob \"the\" builder"`, `no customer ""`},
		{"no customer 'ann'", "no customer 'bob'"},
		{"no customer `ann`", "no customer `bob`"},
		{"dial tcp 10.0.0.1:587: connection refused", "dial tcp 192.168.2.3:2525: connection refused"},
		{"dial tcp [::1]:587: connection refused", "dial tcp [fe80::1%eth0]:25: connection refused", "dial tcp [2001:db8::ff00:42:8329]:1: connection refused"},
		{"lookup smtp.example.com:587: no such host", "lookup smtp.example.com:25: no such host"},
		{"timeout after 5s", "timeout after 900ms", "timeout after 1m30s", "timeout after 1h2m3.5s"},
		{"at 0xc000012345", "at 0x1"},
		{"in  two\nlines", "in two lines"},
	} {
		for _, text := range same[1:] {
			require.Equal(t, cause.Of(same[0]), cause.Of(text))
		}
	}
	for _, other := range [][2]string{
		{"smtp: connection refused", "smtp: connection reset"},
		{"it can't be read, and isn't valid", "it can't be written, and isn't valid"},
		{"no such customer", "no such order"},
		{"decode: bad", "decade: bad"},
	} {
		require.NotEqual(t, cause.Of(other[0]), cause.Of(other[1]))
	}
}

// Fingerprints are stored. If this test fails, all stored ones have no new failures any more, and notes stay with the former causes.
func TestFingerprintsStayTheSame(t *testing.T) {
	t.Parallel()
	mailer := cause.Place{Consumer: "mailer", Type: "ticket.sold"}
	require.Equal(t, "7e791c079d0bc8e0", mailer.Fingerprint(`dial tcp 10.0.0.1:587: "smtp" refused after 5s`))
	require.Equal(t, "19d5d7df4ce0bc88", cause.Place{Topic: "ticket", Type: "ticket.sold"}.Fingerprint("no schema"))
	require.Empty(t, mailer.Fingerprint(""))
	seen := map[string]cause.Place{}
	for _, p := range []cause.Place{
		{}, mailer, {Consumer: "mailer"}, {Topic: "mailer"}, {Type: "mailer"}, {Consumer: "mail", Topic: "er"}, {Consumer: "m", Topic: "ailer"},
	} {
		f := p.Fingerprint("no")
		require.NotContains(t, seen, f, "%+v and %+v", p, seen[f])
		seen[f] = p
	}
}

var printed = regexp.MustCompile(`^[0-9a-f]{16}$`)

// An error may have any bytes and any length.
func FuzzFingerprint(f *testing.F) {
	for _, text := range []string{
		"", "x", "\x00\xff\xfe", `"`, `"\`, "'", "`", "[::", "[:]:1",
		strings.Repeat("é1 ", 5000), strings.Repeat(`"`, 20000), "0x", "\u202e…",
	} {
		f.Add("mailer", text)
	}
	f.Fuzz(func(t *testing.T, consumer, text string) {
		place := cause.Place{Consumer: consumer, Type: consumer}
		of := cause.Of(text)
		require.True(t, utf8.ValidString(of))
		require.LessOrEqual(t, utf8.RuneCountInString(of), 140)
		require.NotRegexp(t, `[0-9]`, of)
		fingerprint := place.Fingerprint(text)
		require.Equal(t, fingerprint, place.Fingerprint(text))
		if text == "" {
			require.Empty(t, fingerprint)
			return
		}
		require.Regexp(t, printed, fingerprint)
		require.NotEqual(t, fingerprint, cause.Place{Consumer: consumer + "x", Type: consumer}.Fingerprint(text))
		require.True(t, utf8.ValidString(cause.Common(text)))
	})
}
