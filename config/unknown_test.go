package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/config"
)

func TestMisspeltVariablesAreRefused(t *testing.T) {
	for name, says := range map[string]string{
		"ONCEBOX_OUTBOX_BATCHSIZE":  "set ONCEBOX_OUTBOX_BATCH_SIZE, or list it in ONCEBOX_IGNORE if it is another program's",
		"ONCEBOX_OUTBX_RETENTION":   "set ONCEBOX_OUTBOX_RETENTION",
		"ONCEBOX_PULSR_URL":         "set ONCEBOX_PULSAR_URL",
		"ONCEBOX_SCHEME":            "set ONCEBOX_SCHEMA",
		"ONCEBOX_PROJECTOR_WORKERS": "docs/config.md lists the names",
		"ONCEBOX_X":                 "docs/config.md lists the names",
		"ONCEBOX_REDIS_URL":         "the addresses of brokers are ONCEBOX_PULSAR_URL, ONCEBOX_NATS_URL, ONCEBOX_KAFKA_URL and ONCEBOX_RABBITMQ_URL, or ",
		"ONCEBOX_AMQP_URL":          "the addresses of brokers are ",
		"ONCEBOX_NAST_URL":          "set ONCEBOX_NATS_URL",
	} {
		clean(t)
		t.Setenv(name, "7")
		_, err := config.FromEnv()
		require.ErrorContains(t, err, name+" does not exist: "+says)
	}
}

// broker has variables of a broker. The configuration of the adapter would bring its client into the modules of each service.
type broker struct {
	URL       string `env:"URL"`
	Tenant    string `env:"TENANT"`
	Namespace string `env:"NAMESPACE"`
}

// A program that reads no ONCEBOX_PULSAR_ leaves these to others; a program that reads them knows all of them.
func TestVariablesOfABrokerAreLeftToItsPrograms(t *testing.T) {
	clean(t)
	t.Setenv("ONCEBOX_PULSAR_URL", "pulsar://b:6650")
	t.Setenv("ONCEBOX_PULSAR_TENANT", "shop")
	t.Setenv("ONCEBOX_PULSAR_NAMESPCE", "orders")
	t.Setenv("ONCEBOX_SOURCE", "shop")
	_, err := config.FromEnv()
	require.NoError(t, err)
	var cfg broker
	require.EqualError(t, config.Env("ONCEBOX_PULSAR_", &cfg), "config: ONCEBOX_PULSAR_NAMESPCE does not exist: "+
		"set ONCEBOX_PULSAR_NAMESPACE, or list it in ONCEBOX_IGNORE if it is another program's")
	t.Setenv("ONCEBOX_PULSAR_NAMESPCE", "")
	require.NoError(t, config.Env("ONCEBOX_PULSAR_", &cfg))
	require.Equal(t, "shop", cfg.Tenant)
}

// A struct with a few of the variables, and a prefix of the program's own.
func TestEnvOfAPart(t *testing.T) {
	clean(t)
	t.Setenv("ONCEBOX_SOURCE", "shop")
	t.Setenv("ONCEBOX_SCHEMA", "s")
	t.Setenv("SHOP_SIZE", "7")
	t.Setenv("SHOP_DOOR", "open")
	var ours struct {
		Schema string `env:"SCHEMA"`
	}
	require.NoError(t, config.Env("ONCEBOX_", &ours))
	require.Equal(t, "s", ours.Schema)
	var shop struct {
		Size int `env:"SIZE"`
	}
	require.NoError(t, config.Env("SHOP_", &shop))
	require.Equal(t, 7, shop.Size)
}

func TestVariablesOfOthersAreLeftAlone(t *testing.T) {
	clean(t)
	for _, name := range []string{ // of services oncebox, oncebox-api and oncebox-pulsar in Kubernetes
		"ONCEBOX_SERVICE_HOST", "ONCEBOX_SERVICE_PORT", "ONCEBOX_SERVICE_PORT_HTTP", "ONCEBOX_PORT", "ONCEBOX_API_PORT_8080_TCP",
		"ONCEBOX_API_PORT_8080_TCP_ADDR", "ONCEBOX_PULSAR_PORT_6650_TCP_PROTO",
	} {
		t.Setenv(name, "x")
	}
	t.Setenv("ONCEBOX_HOME", "/srv")
	t.Setenv("ONCEBOX_KAFKA_URL", "kafka:9092")
	t.Setenv("ONCEBOX_KAFKA_GROUP", "shop")
	t.Setenv("ONCEBOX_IGNORE", "ONCEBOX_HOME, ONCEBOX_KAFKA_*")
	_, err := config.FromEnv()
	require.NoError(t, err)
	require.NoError(t, config.Env("ONCEBOX_PULSAR_", &broker{}))
}
