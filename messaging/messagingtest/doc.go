// Package messagingtest is the suite that every broker adapter passes. An adapter of your own runs it in a test:
//
//	func TestConformance(t *testing.T) {
//		messagingtest.Run(t, messagingtest.Harness{
//			Open: func(t *testing.T) messagingtest.Broker { return connect(t) },
//		})
//	}
//
// # What it proves
//
// Envelopes arrive as they were sent, alone and beside others, whatever is in them, and of [event.Envelope.Delivery] the ordering
// key and nothing else. Messages of one key arrive in order, also of a thousand keys, from many calls of Publish, and when calls are
// refused in part or run out of time and are repeated. Behind a refused message nothing of its key is stored, and its
// neighbours are. Subscriptions start at the earliest message, are independent of each other, and remember what was
// settled, and only that. A consumer's unsettled messages come again, to itself or to another one, also if its process
// crashed. Closing ends everything that waits, from however many sides it comes. A connection that is lost comes back by
// itself, and costs nothing but copies.
//
// Crash and lost connection need the hooks [Harness.Crash] and [Harness.Cut]. With a network in between, a
// small proxy gives both.
//
// # What it does not prove
//
// Restarts of the broker, topics in trouble, and timing. An adapter has tests of its own for those.
//
// Messages may come more often than they have to: the suite asks for the first time each of them comes, except right
// after an acknowledgement in calm running, where it takes a repetition for a bug.
//
// # Who tests the test
//
// The suite's own tests run each case against adapters that break just its promise, over a hundred of them, and want the
// case to say so.
//
// Read first: harness.go:Run.
package messagingtest
