package httpmw

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseKey(t *testing.T) {
	for line, want := range map[string]string{
		"8e03":                                "8e03",
		`"8e03"`:                              "8e03",
		"  8e03\t":                            "8e03",
		"payroll:2025-03":                     "payroll:2025-03",
		`a\b`:                                 `a\b`,
		`"a\\b"`:                              `a\b`,
		`"say \"hi\""`:                        `say "hi"`,
		`"a, b"`:                              "a, b",
		strings.Repeat("k", 255):              strings.Repeat("k", 255),
		`"` + strings.Repeat(`\"`, 255) + `"`: strings.Repeat(`"`, 255),
	} {
		key, reason := keyRule{}.parse([]string{line})
		require.Empty(t, reason, line)
		require.Equal(t, want, key)
	}
	for _, line := range []string{
		"", " ", `"`, `""`, `"k`, `k"`, `"k" `[:2], `"k"x`, `"k";a=1`, `"a\b"`, `"a\`, "a,b", "a b", "a\x00b", "a\x7f", "é", `"é"`, "\"a\x01\"",
		strings.Repeat("k", 256), `"` + strings.Repeat("k", 256) + `"`, strings.Repeat("k", 1<<20),
	} {
		key, reason := keyRule{}.parse([]string{line})
		require.NotEmpty(t, reason, line)
		require.Empty(t, key)
	}
	for _, lines := range [][]string{nil, {"a", "a"}} {
		_, reason := keyRule{}.parse(lines)
		require.NotEmpty(t, reason)
	}
}

func FuzzKeyHeader(f *testing.F) {
	for _, seed := range []string{"8e03", `"8e03"`, `"a\\\"b"`, `"k`, "a,b", "", "é", strings.Repeat("k", 256)} {
		f.Add(seed)
	}
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	f.Fuzz(func(t *testing.T, line string) {
		key, reason := keyRule{}.parse([]string{line})
		if (key == "") != (reason != "") {
			t.Fatalf("%q: key %q, reason %q", line, key, reason)
		}
		if key == "" {
			return
		}
		if len(key) > 255 || strings.ContainsFunc(key, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Fatalf("%q gives the key %q", line, key)
		}
		// The quoted form of a key is the same key.
		again, reason := keyRule{}.parse([]string{`"` + quote.Replace(key) + `"`})
		if again != key {
			t.Fatalf("%q gives %q, quoted %q %s", line, key, again, reason)
		}
	})
}
