package kafka

import (
	"sync"
	"testing"
	"time"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/messagingtest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	messagingtest.Run(t, conformance(configOf(cluster(t).ListenAddrs()...)))
}

// conformance gives each broker a link of its own to the server.
func conformance(cfg *Config) messagingtest.Harness {
	var links sync.Map
	open := func(t *testing.T) messagingtest.Broker {
		t.Helper()
		own, l := *cfg, newLink()
		own.dial = l.dial
		b := connect(t, &own)
		links.Store(b, l)
		return b
	}
	linkOf := func(b messagingtest.Broker) *link {
		l, _ := links.Load(b)
		return l.(*link)
	}
	return messagingtest.Harness{
		Open: open,
		Cut:  func(_ *testing.T, b messagingtest.Broker) { linkOf(b).cut() },
		Crash: func(t *testing.T, b messagingtest.Broker) messagingtest.Broker {
			t.Helper()
			linkOf(b).setDown(true)
			t.Cleanup(func() { linkOf(b).setDown(false) }) // or it would wait for the answer to its goodbye
			return open(t)
		},
		MaxMessageBytes: cfg.WithDefaults().MaxMessageBytes, Patience: 5 * time.Minute, Declares: true, Owns: true, Keeps: true, Counts: true,
		Types: []messaging.SubscriptionType{messaging.Failover},
	}
}
