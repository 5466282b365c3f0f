package projector

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A batch has to be settled before its lease ends, or two projectors publish its rows.
func TestBatchesFitIntoTheLease(t *testing.T) {
	require.NoError(t, (*Config)(nil).Validate())
	cfg := &Config{PublishTimeout: 6 * time.Second, Lease: 10 * time.Second, Renew: 3 * time.Second}
	require.ErrorContains(t, cfg.Validate(), "Config.PublishTimeout (6s) + 1s must be less than Config.Lease - Config.Renew (7s)")
	cfg.PublishTimeout -= time.Millisecond
	require.NoError(t, cfg.Validate())
}
