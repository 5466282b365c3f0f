package nats

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/messaging"
)

func TestConfigThatCannotBe(t *testing.T) {
	t.Parallel()
	for wanted, change := range map[string]func(*Config){
		"Config.URL is empty":        func(c *Config) { c.URL = "" },
		"does not look like nats://": func(c *Config) { c.URL = "http://user:secret@host:8222" },
		"Config.Prefix":              func(c *Config) { c.Prefix = "a.*" },
		"Config.Declare":             func(c *Config) { c.Declare = "perhaps" },
		"Config.Partitions":          func(c *Config) { c.Partitions = -1 },
		"Config.Replicas":            func(c *Config) { c.Replicas = 6 },
		"Config.MaxAge":              func(c *Config) { c.MaxAge = time.Second },
		"Config.MaxBytes":            func(c *Config) { c.MaxBytes = -1 },
		"which is 30s":               func(c *Config) { c.DuplicateWindow = 30 * time.Second },
		"no more than MaxAge":        func(c *Config) { c.MaxAge, c.DuplicateWindow = time.Minute, 2*time.Minute },
		"Config.TakeoverTimeout":     func(c *Config) { c.TakeoverTimeout = time.Millisecond },
		"Config.HandoverTimeout":     func(c *Config) { c.HandoverTimeout = -2 },
		"Config.InFlight":            func(c *Config) { c.InFlight = -1 },
		"Config.OperationTimeout":    func(c *Config) { c.OperationTimeout = -1 },
		"Config.LogInterval":         func(c *Config) { c.LogInterval = time.Millisecond },
		"Config.Topics":              func(c *Config) { c.Topics = []string{"a/b"} },
		"no subscriptions of this type": func(c *Config) {
			c.Subscriptions = []messaging.Subscription{{Topic: "t", Name: "n", Type: messaging.KeyShared}}
		},
		"only one may be set":               func(c *Config) { c.Token, c.NKeyFile = "t", "f" },
		"Config.Password is set":            func(c *Config) { c.Password = "p" },
		"TLSCert and TLSKey belong":         func(c *Config) { c.TLSCert = "c" },
		"makes a stream with a name of 268": func(c *Config) { c.Topics = []string{strings.Repeat("é", 26)} },
	} {
		c := &Config{URL: "nats://host:4222"}
		require.NoError(t, c.Validate())
		change(c)
		err := c.Validate()
		require.ErrorContains(t, err, wanted)
		require.NotContains(t, err.Error(), "secret")
	}
}
