package pulsar

import (
	"testing"
	"time"

	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging/messagingtest"
)

func TestConformance(t *testing.T) {
	for name, unbatched := range map[string]bool{"batched": false, "unbatched": true} {
		t.Run(name, func(t *testing.T) {
			n := pulsartest.Open(t)
			n.Retain(t) // the suite publishes before it subscribes
			messagingtest.Run(t, messagingtest.Harness{
				Open: func(t *testing.T) messagingtest.Broker {
					t.Helper()
					cfg := config(n)
					cfg.DisableBatching = unbatched
					return connect(t, cfg)
				},
				Patience: time.Minute,
			})
		})
	}
}
