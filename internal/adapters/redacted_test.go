package adapters_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/adapters"
)

func TestNoSecretIsShown(t *testing.T) {
	for address, shown := range map[string]string{
		"":                         "",
		"pulsar://host:6650,h2":    "pulsar://host:6650,h2",
		"amqp://guest:guest@h/v":   "amqp://guest:xxxxx@h/v",
		"http://u:se@cr/et:x@h:80": "http://u:xxxxx@h:80",
		"u:secret@h:4222":          "u:xxxxx@h:4222",
		"nats://t0ken@h:4222":      "nats://xxxxx@h:4222",
		"nats://u:s@a:1,nats://t0ken@b:2,nats://c:3": "nats://u:xxxxx@a:1,nats://xxxxx@b:2,nats://c:3",
		"nats://u:s,ecret@a:1,b:2":                   "nats://u:xxxxx@a:1,b:2",
		"nats://u:s@a:1,u:s@b:2":                     "nats://u:xxxxx@b:2",
	} {
		require.Equal(t, shown, adapters.Redacted(address))
	}
}
