package rabbitmq

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
)

func TestMistakesInTheConfiguration(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*Config){
		"Config.URL is empty":                    func(c *Config) { c.URL = "" },
		"is that of a web server":                func(c *Config) { c.URL = "http://user:secret@host:15672" },
		"does not look like amqp://":             func(c *Config) { c.URL = "kafka://user:secret@host" },
		`"amqp://user:xxxxx@a,,b" does not look`: func(c *Config) { c.URL = "amqp://user:secret@a,,b" },
		"does not look like http://host:15672":   func(c *Config) { c.ManagementURL = "host:15672" },
		"Config.Exchange":                        func(c *Config) { c.Exchange = "a:b" },
		"Config.Queues is 33":                    func(c *Config) { c.Queues = 33 },
		`give "make" or "check"`:                 func(c *Config) { c.Declare = "maybe" },
		"Config.Prefetch is -1":                  func(c *Config) { c.Prefetch = -1 },
		"Config.InFlight is -1":                  func(c *Config) { c.InFlight = -1 },
		"Config.MaxMessageBytes is -1":           func(c *Config) { c.MaxMessageBytes = -1 },
		"Config.Heartbeat is 10ms":               func(c *Config) { c.Heartbeat = 10 * time.Millisecond },
		"Config.PublishTimeout is -1s":           func(c *Config) { c.PublishTimeout = -time.Second },
		"Config.LogInterval is 1ms":              func(c *Config) { c.LogInterval = time.Millisecond },
		"TLSCert and TLSKey belong together":     func(c *Config) { c.TLSCert = "cert.pem" },
		"the broker has no subscriptions of": func(c *Config) {
			c.Subscriptions = []messaging.Subscription{{Topic: "order", Name: "billing", Type: messaging.KeyShared}}
		},
	} {
		cfg := Config{URL: "amqp://user:secret@host"}
		require.NoError(t, cfg.Validate())
		change(&cfg)
		err := cfg.Validate()
		require.ErrorContains(t, err, says)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestHostsOfACluster(t *testing.T) {
	t.Parallel()
	addresses, err := (&Config{URL: "amqps://user:p%40ss@a:5671,b,[::1]:7/shop"}).addresses()
	require.NoError(t, err)
	require.Equal(t, []string{"amqps://user:p%40ss@a:5671/shop", "amqps://user:p%40ss@b/shop", "amqps://user:p%40ss@[::1]:7/shop"}, addresses)
	addresses, err = (&Config{URL: "amqps://a,b?auth_mechanism=external"}).addresses()
	require.NoError(t, err)
	require.Equal(t, []string{"amqps://a?auth_mechanism=external", "amqps://b?auth_mechanism=external"}, addresses)
}
