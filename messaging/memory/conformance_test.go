package memory_test

import (
	"testing"
	"time"

	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/messaging/messagingtest"
)

func TestConformance(t *testing.T) {
	messagingtest.Run(t, messagingtest.Harness{
		Open: func(*testing.T) messagingtest.Broker { return memory.New(nil) },
		Cut:  func(_ *testing.T, b messagingtest.Broker) { b.(*memory.Broker).Disconnect() },
		// The cases run side by side, and take longer than the default on a busy machine.
		Patience: 5 * time.Minute,
	})
}
