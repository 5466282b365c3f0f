// Package pulsar connects oncebox to Apache Pulsar. It is the only package that links Pulsar's client.
//
//	var cfg pulsar.Config
//	if err := config.Env("ONCEBOX_PULSAR_", &cfg); err != nil { ... }
//	broker, err := pulsar.Connect(ctx, &cfg)
//
// A [Broker] publishes, subscribes, and makes topics and subscriptions. Payloads go unchanged; what describes an event
// travels as properties, CloudEvents in binary mode: ce_id, ce_type, ce_source, ce_subject, ce_time and so on, other
// metadata as meta-<key>. The routing key is Pulsar's key; an ordering key that was set is both that and ce_orderingkey. A
// message from a program that knows nothing of this is received too: its properties are the metadata, and its place in the
// topic is its id.
//
// # Guarantees
//
// What [Broker.Publish] reports as sent has a receipt of the broker, and is per (topic, key) a prefix of what it was
// given. The client alone gives neither: it may forget a message without a word, store one after its deadline, store
// later messages of a key whose earlier one failed, and call sent what the broker threw away as a duplicate. So every
// call has producers of its own, keeps its own account, and gives up a producer in which it lost faith; what has no
// receipt then is [messaging.ErrUnknown] and must be sent again.
//
// Messages of a key are received in order, at least once. Subscriptions start at the earliest message. A broker that was
// killed delivers thousands of messages again that were acknowledged, older ones first.
//
// With [messaging.Failover] a consumer that joins, leaves or comes back moves partitions, and all that is not settled comes
// again at the new one, after a second. The first time that a consumer gets the messages of a key it gets them in order,
// also if the broker reads on in the wrong place during that second: what comes too early is held off, which costs up to
// two seconds more then, and nothing otherwise. The consumer before may still be at work on the same messages meanwhile. In
// three rare cases the consumer cannot know, and later messages of a key may come before earlier ones: docs/guarantees.md has
// them. Nobody puts those in order, package inbox neither: a handler that must know compares the version of the aggregate. What
// the broker forgets to read comes after some seconds of silence.
//
// Whatever is received stops nobody. What is encrypted, larger than Config.MaxReceivedBytes, or lacks a part, comes with the reason
// under [messaging.UnreadableKey] and with at most 64 KiB of its payload: package inbox makes a dead letter of it. What the client
// throws away by itself does not get here: docs/guarantees.md says what that is.
//
// [messaging.KeyShared] needs producers that do not batch: Config.DisableBatching wherever the topic is published.
//
// Keys move when somebody adds partitions to a topic; their order is not kept across that.
//
// # Errors
//
// [messaging.Permanent]: too large, or a topic that is not a plain name. [*messaging.TopicError]: missing, terminated,
// over its quota, not permitted. [messaging.ErrBrokerDown]: no connection; only what was never handed over.
// [messaging.ErrUnknown]: no receipt in time. [messaging.ErrBehind]: behind one of those.
//
// A broker that is away at the start is waited for, see [Connect]. A subscription of another service is refused for good, with a
// [*messaging.SourceError].
//
// A lost connection is no error: producers and consumers come back by themselves. [messaging.Receiver] returns an error
// when the broker ends it for good.
//
// # Metrics
//
//   - oncebox.broker.published: messages by topic and outcome (ok, permanent, topic, broker_down, unknown, behind)
//   - oncebox.broker.publish.duration: seconds per call of Publish, by outcome (ok, failed)
//   - oncebox.broker.unwatched_topics: topics published to whose declared subscription is gone, or that
//     have neither a subscription nor retention
//
// Read first: broker.go:Connect and start.go:start.begin, then publish.go:Broker.Publish and flight.go:flight.run, then receiver.go:receiver.Receive and
// turn.go:turn. Package internal/topics makes topics and subscriptions, internal/wire has the format of messages.
package pulsar
