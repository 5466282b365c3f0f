package shop

import (
	"testing"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/event/eventtest"
)

// Events that were stored by an earlier build stay readable.
func TestEventsStayReadable(t *testing.T) {
	registry := event.NewRegistry()
	registerEvents(registry)
	eventtest.Golden(t, registry)
}
