package nats

import (
	"testing"
	"time"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/messagingtest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	server := serve(t)
	messagingtest.Run(t, messagingtest.Harness{
		Open:            func(t *testing.T) messagingtest.Broker { return connect(t, config(server.URL())) },
		MaxMessageBytes: 1 << 20, Types: []messaging.SubscriptionType{messaging.Failover, messaging.Shared},
		Patience: time.Minute, Declares: true, Owns: true,
	})
}
