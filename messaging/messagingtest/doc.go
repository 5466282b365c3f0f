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
// Envelopes arrive as they were sent, alone and beside others, whatever they contain. Of [event.Envelope.Delivery] only the ordering
// key arrives. Messages of one key arrive in order: of one or a thousand keys, from many calls of Publish, and when calls that were
// refused in part or ran out of time are repeated. After a refused message no later message of its key is stored, and messages of other
// keys are. Subscriptions start at the earliest message, are independent of each other, and remember exactly which messages were
// settled. Unsettled messages come again, to the same consumer or to another one, also if the process has
// crashed. The number of messages that wait is as precise as the adapter says, if it reports one. Closing ends every call that waits, even if
// several goroutines close at once. After a lost connection the client connects again by itself; the only effect is that messages may come twice.
//
// Crash and lost connection need the hooks [Harness.Crash] and [Harness.Cut]. With a network in between, a
// small proxy gives both.
//
// # What it does not prove
//
// Topics in trouble, and timing. An adapter has tests of its own for those. A server that is killed is the matter of [RunKilled], which needs a server for
// itself.
//
// Messages may come more often than necessary: the suite only requires that each comes at least once. The exception is the moment right
// after an acknowledgement without any trouble: a repetition there is a failure.
//
// # Who tests the test
//
// The suite's own tests run each case against adapters that break exactly its promise, over a hundred of them, and require that the
// case fails for the right reason.
//
// Read first: harness.go:Run.
package messagingtest
