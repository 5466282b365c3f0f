package policy

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/httpmw"
)

// A problem that is added gets a page, and a line in the documentation of the package.
func TestAllProblemsAreExplained(t *testing.T) {
	source, err := os.ReadFile("../problem.go")
	require.NoError(t, err)
	documentation, err := os.ReadFile("../doc.go")
	require.NoError(t, err)
	explained := map[string]bool{}
	for _, k := range (&policy{cfg: (*httpmw.IdempotencyConfig)(nil).WithDefaults()}).kinds(true) {
		require.NotEmpty(t, k.Advice)
		explained[k.Type] = true
	}
	found := regexp.MustCompile(`Type: "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1)
	require.Len(t, found, len(explained))
	for _, f := range found {
		require.True(t, explained[f[1]], f[1])
		require.Contains(t, string(documentation), "//\t"+f[1]+" ")
	}
}

func TestTextsOfNumbers(t *testing.T) {
	for d, want := range map[time.Duration]string{
		10 * time.Second: "10s", time.Minute: "1m", 10 * time.Minute: "10m", time.Hour: "1h", 30 * 24 * time.Hour: "720h", 90 * time.Second: "1m30s",
		time.Hour + time.Second: "1h0m1s", 90 * time.Minute: "1h30m", 1500 * time.Millisecond: "1.5s", 0: "0s",
	} {
		require.Equal(t, want, duration(d))
	}
	for n, want := range map[int64]string{
		-1: "any number of bytes", 0: "0 bytes", 1000: "1000 bytes", 2048: "2 KiB", 3 << 20: "3 MiB", 1<<20 + 1: "1048577 bytes",
	} {
		require.Equal(t, want, size(n))
	}
	require.Equal(t, "none", list([]int{}))
	require.Equal(t, "1", list([]int{1}))
	require.Equal(t, "1, 2 and 3", list([]int{1, 2, 3}))
}
