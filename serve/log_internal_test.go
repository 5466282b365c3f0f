package serve

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// People read a duration in both formats, also within a group.
func TestDurationsAreText(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var lines bytes.Buffer
		cfg := (&Config{LogFormat: format}).WithDefaults()
		newLog(&cfg, &lines).Info("ends", "within", 80*time.Second, slog.Group("all", "pause", 55*time.Millisecond), "tries", 3)
		require.Contains(t, lines.String(), "1m20s")
		require.Contains(t, lines.String(), "55ms")
		require.NotContains(t, lines.String(), "80000000000")
		require.Regexp(t, `tries"?[:=]3\b`, lines.String(), "a number stays a number")
	}
}
