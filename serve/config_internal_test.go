package serve

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The environment is before Service.Defaults, and these are before the defaults of Config.
func TestDefaultsOfAService(t *testing.T) {
	s := Service{Source: "shop", Defaults: Config{Migrate: true, LogFormat: "json", Parts: []string{API}}}
	t.Setenv("ONCEBOX_SERVE_PARTS", "relay,consumers")
	_, cfg, err := fromEnv(&s)
	require.NoError(t, err)
	require.True(t, cfg.Migrate)
	require.Equal(t, "json", cfg.LogFormat)
	require.Equal(t, []string{Relay, Consumers}, cfg.Parts)
	require.Equal(t, "info", cfg.LogLevel)
	t.Setenv("ONCEBOX_SERVE_MIGRATE", "false")
	_, cfg, err = fromEnv(&s)
	require.NoError(t, err)
	require.False(t, cfg.Migrate)
	require.Equal(t, []string{API}, s.Defaults.Parts)
}
