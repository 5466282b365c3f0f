package main

import (
	"testing"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/event/eventtest"
)

// Events that a store keeps for ever must be understood for ever, for example account.credited, which was
// renamed and counted euros.
func TestEventsStayReadable(t *testing.T) {
	registry := event.NewRegistry()
	register(registry)
	eventtest.Golden(t, registry)
}
