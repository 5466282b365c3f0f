package pulsartest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
)

func TestMain(m *testing.M) { pgtest.Main(m, pulsartest.Stop) }

func TestOpenGivesEachTestItsOwnNamespace(t *testing.T) {
	a, b := pulsartest.Open(t), pulsartest.Open(t)
	require.NotEqual(t, a.Name, b.Name)
	require.NoError(t, a.Admin(t.Context(), http.MethodPut, "/persistent/"+a.Name+"/orders/partitions", "4"))
	require.NoError(t, a.Admin(t.Context(), http.MethodGet, "/persistent/"+a.Name+"/orders-partition-3/stats", ""))
	require.Equal(t, "persistent://"+a.Name+"/orders", a.Topic("orders"))
	a.Retain(t)
}

func TestNamespaceIsRemovedAtTheEnd(t *testing.T) {
	var n *pulsartest.Namespace
	t.Run("a test", func(t *testing.T) {
		n = pulsartest.Open(t)
		require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/persistent/"+n.Name+"/orders/partitions", "4"))
	})
	require.ErrorContains(t, n.Admin(t.Context(), http.MethodGet, "/namespaces/"+n.Name, ""), "404")
}
