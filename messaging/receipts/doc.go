// Package receipts publishes the messages of one call through a client that answers later: a [Window] hands the messages over and waits for
// their receipts. Adapters of brokers use it; what differs between clients is the function that sends one message.
//
//	window := receipts.Window{InFlight: 256}
//	failed, _ := window.Publish(ctx, msgs, nil, func(_ context.Context, i int, receipt func(error)) error {
//		return client.SendAsync(msgs[i].Payload, receipt)
//	})
//
// # Guarantees
//
// Those of messaging.Publisher that do not depend on the broker. Of each topic and key, the messages without an error are the first ones of
// the call. No message is handed over behind a refused one of its key. A message without a receipt is reported as messaging.ErrUnknown when
// ctx ends, whatever the client does later: the first receipt counts, and a receipt after the end changes nothing.
//
// A client that may store a later message although an earlier one fails needs [Window.Holds].
//
// Read first: window.go:Window, then call.go:call.run.
package receipts
