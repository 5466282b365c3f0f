package main

import (
	"testing"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/event/eventtest"
)

// What is in a store for ever has to be understood for ever: also account.credited, which was renamed and counted euros.
func TestEventsStayReadable(t *testing.T) {
	registry := event.NewRegistry()
	register(registry)
	eventtest.Golden(t, registry)
}
