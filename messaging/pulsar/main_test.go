package pulsar

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

func TestMain(m *testing.M) { pgtest.Main(m, pulsartest.Stop) }

// config is that of a namespace.
func config(n *pulsartest.Namespace) *Config {
	tenant, namespace, _ := strings.Cut(n.Name, "/")
	return &Config{URL: n.URL, AdminURL: n.AdminURL, Tenant: tenant, Namespace: namespace}
}

// connect connects to a namespace and closes with the test.
func connect(t *testing.T, cfg *Config) *Broker {
	t.Helper()
	b, err := Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}
