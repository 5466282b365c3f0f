package oncetest_test

import "testing"

// The consumer of the service handles an event that another service has published.
func TestEventOfAnotherService(t *testing.T) {
	kit := newKit(t)
	kit.PublishFrom("sales", "order", OrderPlaced{"o-1"})
	kit.Drain()
	requireOneInvoice(t, kit)
}
