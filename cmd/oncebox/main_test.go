package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/commandtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

func TestMain(m *testing.M) { commandtest.Main(m, main, pulsartest.Stop) }

// The settings of a namespace that drop messages are found, each with the command that mends it. So are addresses at which another server listens.
func TestDoctorFindsWhatHurts(t *testing.T) {
	n := pulsartest.Open(t)
	tenant, namespace, _ := strings.Cut(n.Name, "/")
	broker, err := pulsar.Connect(t.Context(), &pulsar.Config{URL: n.URL, AdminURL: n.AdminURL, Tenant: tenant, Namespace: namespace, Partitions: 1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	commandtest.Use(t, broker, "order")
	p := commandtest.New(t, "oncebox", "ONCEBOX_PULSAR_URL", n.URL, "ONCEBOX_PULSAR_ADMIN_URL", n.AdminURL, "ONCEBOX_PULSAR_TENANT", tenant,
		"ONCEBOX_PULSAR_NAMESPACE", namespace)
	p.RequireFindings()

	for path, body := range map[string]string{
		"/namespaces/" + n.Name + "/messageTTL":   "60",
		"/namespaces/" + n.Name + "/backlogQuota": `{"limitSize":1000000,"policy":"consumer_backlog_eviction"}`,
	} {
		require.NoError(t, n.Admin(t.Context(), http.MethodPost, path, body))
	}
	p.RequireFindings(
		"problem (broker): topic order: messages that were not handled are dropped after 1m0s (message TTL)",
		"problem (broker): topic order: the oldest messages are dropped when the backlog is full (consumer_backlog_eviction)",
	)
	p.RequireUse(broker)
	require.NoError(t, n.Admin(t.Context(), http.MethodPut, "/persistent/"+n.Name+"/lost/partitions", "1"))
	require.Contains(t, p.Doctor("--topic", "lost")[0], "problem (broker): topic lost: it has no subscription and no retention")
	require.Contains(t, p.Doctor("--topic", "invoice")[0], "/invoice not found")

	for url, says := range map[string]string{
		"pulsar" + strings.TrimPrefix(n.AdminURL, "http"): "problem (connection): ",
		"pulsar://127.0.0.1:1":                            "problem (connection): no host in ONCEBOX_PULSAR_URL accepts a connection",
	} {
		found := p.With("ONCEBOX_PULSAR_URL", url).Doctor()
		require.Contains(t, strings.Join(found, "\n"), says)
	}
}

// The address of another system is refused before anything waits for it.
func TestAddressOfAnotherSystem(t *testing.T) {
	p := commandtest.New(t, "oncebox")
	for url, says := range map[string]string{
		"nats://localhost:4222": "does not look like pulsar://host:6650", "kafka://localhost:9092": "does not look like pulsar://host:6650",
		"http://localhost:8080": "is that of a web server: give the broker's own address",
	} {
		p.RequireRefused("ONCEBOX_PULSAR_URL", url, says)
	}
}
