package rabbitmq

import (
	"sync"
	"testing"

	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/messagingtest"
)

// Each broker has a link of its own to the server.
func TestConformance(t *testing.T) {
	t.Parallel()
	url := server(t).URL
	var links sync.Map
	linkOf := func(b messagingtest.Broker) *linktest.Link {
		l, _ := links.Load(b)
		return l.(*linktest.Link)
	}
	open := func(t *testing.T) messagingtest.Broker {
		t.Helper()
		l := linktest.New(t, url)
		b := connect(t, config(l.URL))
		links.Store(b, l)
		return b
	}
	messagingtest.Run(t, messagingtest.Harness{
		Open: open,
		Cut:  func(_ *testing.T, b messagingtest.Broker) { linkOf(b).Cut() },
		Crash: func(t *testing.T, b messagingtest.Broker) messagingtest.Broker {
			t.Helper()
			linkOf(b).SetDown(true)
			return open(t)
		},
		Patience: hang, Declares: true, Owns: true, Forgets: true,
		Types: []messaging.SubscriptionType{messaging.Failover, messaging.Shared},
	})
}
