package memory_test

import (
	"testing"

	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/messaging/messagingtest"
)

func TestConformance(t *testing.T) {
	messagingtest.Run(t, messagingtest.Harness{
		Open:     func(*testing.T) messagingtest.Broker { return memory.New(nil) },
		Cut:      func(_ *testing.T, b messagingtest.Broker) { b.(*memory.Broker).Disconnect() },
		Declares: true, Owns: true, Counts: true,
	})
}
