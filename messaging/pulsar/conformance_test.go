package pulsar

import (
	"sync"
	"testing"

	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging/messagingtest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("batched", func(t *testing.T) {
		t.Parallel()
		messagingtest.Run(t, conformance(t, false))
	})
	if !raced {
		t.Run("unbatched", func(t *testing.T) {
			t.Parallel()
			messagingtest.Run(t, conformance(t, true))
		})
	}
}

// conformance gives each broker a link of its own to the server.
func conformance(t *testing.T, unbatched bool) messagingtest.Harness {
	t.Helper()
	n := pulsartest.Open(t)
	n.Retain(t) // the suite publishes before it subscribes
	var links sync.Map
	linkOf := func(b messagingtest.Broker) *linktest.Link {
		l, _ := links.Load(b)
		return l.(*linktest.Link)
	}
	open := func(t *testing.T) messagingtest.Broker {
		t.Helper()
		l := linktest.New(t, n.URL)
		cfg := config(n)
		cfg.URL, cfg.DisableBatching = l.URL, unbatched
		b := connect(t, cfg)
		links.Store(b, l)
		return b
	}
	h := messagingtest.Harness{
		Open: open,
		Crash: func(t *testing.T, b messagingtest.Broker) messagingtest.Broker {
			t.Helper()
			linkOf(b).SetDown(true)
			t.Cleanup(func() { linkOf(b).SetDown(false) }) // or it would wait for the answer to its goodbye
			return open(t)
		},
		Declares: true, Owns: true, Counts: true,
	}
	if !raced {
		h.Cut = func(_ *testing.T, b messagingtest.Broker) { linkOf(b).Cut() }
	}
	return h
}
