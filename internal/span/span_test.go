package span_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/span"
)

func TestText(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		168 * time.Hour: "7 days", 24 * time.Hour: "1 day", 25 * time.Hour: "25 hours", time.Hour: "1 hour", 90 * time.Minute: "1h30m0s", 0: "0s",
		10 * time.Second: "10s", -1: "-1ns",
	} {
		require.Equal(t, want, span.Text(d))
	}
}
