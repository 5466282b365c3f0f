package nats

import (
	"sync"
	"testing"
	"time"

	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/messagingtest"
)

// Each broker has a link of its own to the server, so that cutting it disturbs no other test.
func TestConformance(t *testing.T) {
	t.Parallel()
	server := serve(t)
	var links sync.Map
	linkOf := func(b messagingtest.Broker) *linktest.Link {
		l, _ := links.Load(b)
		return l.(*linktest.Link)
	}
	open := func(t *testing.T) messagingtest.Broker {
		l := linktest.New(t, server.URL())
		cfg := config(l.URL)
		cfg.TakeoverTimeout = 5 * time.Second // a busy machine may keep this process from its processor for longer than a second
		b := connect(t, cfg)
		links.Store(b, l)
		return b
	}
	messagingtest.Run(t, messagingtest.Harness{
		Open: open,
		Cut:  func(_ *testing.T, b messagingtest.Broker) { linkOf(b).Cut() },
		Crash: func(t *testing.T, b messagingtest.Broker) messagingtest.Broker {
			linkOf(b).SetDown(true)
			return open(t)
		},
		MaxMessageBytes: 1 << 20, Types: []messaging.SubscriptionType{messaging.Failover, messaging.Shared},
		Declares: true, Owns: true, Counts: true,
	})
}
