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
// Envelopes arrive as they were sent, whatever is in them, and [event.Envelope.Delivery] stays at home. Messages of one
// key arrive in order, also from many calls of Publish. Behind a refused message nothing of its key is stored, and its
// neighbours are. Subscriptions start at the earliest message, are independent of each other, and remember what was
// settled, and only that. A consumer's unsettled messages come again, to itself or to another one. Closing ends
// everything that waits.
//
// # What it does not prove
//
// Lost connections, restarts of the broker, and timing. An adapter has tests of its own for those.
//
// Messages may come more often than they have to: the suite asks for the first time each of them comes, except right
// after an acknowledgement in calm running, where it takes a repetition for a bug.
package messagingtest
