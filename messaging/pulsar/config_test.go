package pulsar

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pagetest"
	"github.com/oncebox/oncebox/messaging"
)

func TestConfigDefaults(t *testing.T) {
	c := (&Config{URL: "pulsar://broker:6650,other:6650"}).WithDefaults()
	require.NoError(t, c.Validate())
	require.Equal(t, "http://broker:8080", c.AdminURL)
	require.Equal(t, 2*time.Second, c.AdminTimeout, "of a guess")
	c = (&Config{URL: "pulsar://broker:6650", AdminURL: c.AdminURL}).WithDefaults()
	require.Equal(t, 20*time.Second, c.AdminTimeout)
	require.Equal(t, "https://broker:8443", adminURL("pulsar+ssl://broker:6651"))
	require.Equal(t, "http://[::1]:8080", adminURL("pulsar://[::1]:6650"))
	require.Equal(t, []any{"public", "default", 4, 5 << 20, 30 * time.Second}, []any{c.Tenant, c.Namespace, c.Partitions, c.MaxMessageBytes, c.ConnectTimeout})
	require.NotEmpty(t, c.Name)
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	for text, c := range map[string]*Config{
		"Config.URL is empty":              nil,
		`"broker:6650" does not look like`: {URL: "broker:6650"},
		`"http://broker" is that of a web server: give the broker's own address, which looks like pulsar://host:6650`: {URL: "http://broker"},
		`"pulsar://" does not look like`:  {URL: "pulsar://"},
		"Config.AdminURL":                 {URL: "pulsar://b", AdminURL: "b:8080"},
		"Config.Partitions is -1":         {URL: "pulsar://b", Partitions: -1},
		"Config.Producers is -1":          {URL: "pulsar://b", Producers: -1},
		"Config.MaxMessageBytes is 100":   {URL: "pulsar://b", MaxMessageBytes: 100},
		"Config.CloseTimeout is -1ns":     {URL: "pulsar://b", CloseTimeout: -1},
		"Config.ProducerIdle is -2ns":     {URL: "pulsar://b", ProducerIdle: -2},
		"Config.LogInterval is 1ms":       {URL: "pulsar://b", LogInterval: time.Millisecond},
		"Config.AudienceInterval is -2ns": {URL: "pulsar://b", AudienceInterval: -2},
		"Config.MaxReceivedBytes is 10000: give MaxMessageBytes (5242880) or more": {URL: "pulsar://b", MaxReceivedBytes: 10000},
		"Config.Tenant":                      {URL: "pulsar://b", Tenant: "a/b"},
		"Config.Namespace":                   {URL: "pulsar://b", Namespace: "ä"},
		`Config.Topics: "a/b"`:               {URL: "pulsar://b", Topics: []string{"a/b"}},
		"named like a partition":             {URL: "pulsar://b", Topics: []string{"a-partition-0"}},
		"Topic is empty":                     {URL: "pulsar://b", Topics: []string{""}},
		"Config.Subscriptions: ":             {URL: "pulsar://b", Subscriptions: []messaging.Subscription{{Topic: "a"}}},
		`subscription "a+b"`:                 {URL: "pulsar://b", Subscriptions: []messaging.Subscription{{Topic: "a", Name: "a+b"}}},
		"Token and TokenFile are both set":   {URL: "pulsar://b", Token: "a", TokenFile: "b"},
		"Config.TLSCert and TLSKey":          {URL: "pulsar://b", TLSCert: "a"},
		"a NUL or another control character": {URL: "pulsar://b", Topics: []string{"a\x00"}},
	} {
		require.ErrorContains(t, c.Validate(), text)
	}
}

func TestConfigFromEnvironment(t *testing.T) {
	var c Config
	require.NoError(t, env.ParseWithOptions(&c, env.Options{Prefix: "ONCEBOX_PULSAR_", Environment: map[string]string{
		"ONCEBOX_PULSAR_URL": "pulsar://b:1", "ONCEBOX_PULSAR_ADMIN_URL": "http://b:2", "ONCEBOX_PULSAR_TOPICS": "a,b",
		"ONCEBOX_PULSAR_PARTITIONS": "8", "ONCEBOX_PULSAR_CONNECT_TIMEOUT": "7s", "ONCEBOX_PULSAR_DISABLE_BATCHING": "true", "ONCEBOX_PULSAR_TOKEN": "t",
	}}))
	require.Equal(t, Config{
		URL: "pulsar://b:1", AdminURL: "http://b:2", Topics: []string{"a", "b"}, Partitions: 8, ConnectTimeout: 7 * time.Second,
		DisableBatching: true, Token: "t",
	}, c)
}

// docs/brokers.md compares the brokers by their defaults.
func TestNumbersOfTheComparison(t *testing.T) {
	page, err := os.ReadFile("../../docs/brokers.md")
	require.NoError(t, err)
	cfg := (*Config)(nil).WithDefaults()
	for row, want := range map[string]string{
		"partitions of a new topic":                           strconv.Itoa(cfg.Partitions),
		"largest message, unless the server is set otherwise": fmt.Sprintf("%d MiB", cfg.MaxMessageBytes>>20),
	} {
		require.Equal(t, want, pagetest.Cell(t, string(page), row, "Pulsar"), row)
	}
}
