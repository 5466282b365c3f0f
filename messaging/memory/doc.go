// Package memory is a broker inside the process, for tests, examples, and programs that need no other broker.
//
// It behaves as Pulsar does as far as a program can see through the interfaces of package messaging, so what works here
// works there: subscriptions are named and durable, consumers share them by partition or by key, a consumer that goes
// away gives back what it did not settle, and every message may come twice. Nothing survives the process.
//
// # Guarantees
//
// At least once, in order per (topic, key). A topic keeps all its messages, so that a later subscription
// can start at the earliest one. So it needs memory for everything that was ever published, unless [Config.Retain]
// limits it.
//
// Envelopes are copied on the way in and on the way out: publisher and consumers never share a map or a slice.
// Of [event.Envelope.Delivery] only the ordering key travels.
//
// With [messaging.Failover] a consumer that joins may take over partitions while another one still works on their messages, and
// gets all messages that are not settled. Pulsar does the same; the inbox makes sure that each message takes effect once.
//
// # Errors
//
// A message over [Config.MaxMessageBytes] or with a topic that is not a plain name is refused with
// [messaging.Permanent]. After [Broker.Close] everything is [messaging.ErrBrokerDown] or [messaging.ErrClosed].
//
// # Metrics
//
//   - oncebox.broker.published: messages by topic and outcome (ok, failed)
//
// # Tests
//
// [Broker.Refuse] makes publishing fail, [Broker.Redeliver] delivers a message a second time, [Broker.Disconnect] all that consumers hold,
// and [Broker.Messages] returns the messages of a topic.
//
// Read first: broker.go:Broker.Publish and broker.go:Broker.Subscribe.
package memory
