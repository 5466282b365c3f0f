// Package pulsar connects oncebox to Apache Pulsar. It is the only package that links Pulsar's client.
//
//	var cfg pulsar.Config
//	if err := config.Env("ONCEBOX_PULSAR_", &cfg); err != nil { ... }
//	broker, err := pulsar.Connect(ctx, &cfg)
//
// A [Broker] publishes, subscribes, and makes topics and subscriptions. Payloads are sent unchanged. The other fields of an event are sent as
// properties, in the binary mode of CloudEvents: ce_id, ce_type, ce_source, ce_subject, ce_time and so on. Other metadata is sent as meta-<key>.
// The routing key is Pulsar's message key; an explicit ordering key is sent as message key and as ce_orderingkey. A message from a program that
// does not use this format is received too: its properties become the metadata, and its place in the topic becomes its id.
//
// # Guarantees
//
// Every message that [Broker.Publish] reports as sent has a receipt of the broker, and the sent messages of a (topic, key) are a prefix of the
// messages of that key in the call. Pulsar's client alone guarantees neither: it may lose a message without an error, store a message after its
// deadline, store later messages of a key whose earlier message failed, and report a message as sent that the broker dropped as a duplicate. So
// every call has producers of its own, compares the receipts with its messages itself, and closes a producer after such a fault. The result of a
// message without a receipt is [messaging.ErrUnknown], and the message must be sent again.
//
// Messages of a key are received in order, at least once. Subscriptions start at the earliest message. A broker that was killed delivers
// again thousands of messages that were acknowledged, older ones first.
//
// With [messaging.Failover], partitions move when a consumer joins, leaves or comes back. After a second, the broker delivers all messages that
// are not settled to the new consumer. A consumer gets the messages of a key in order the first time. During that second the broker may continue
// in the wrong place of the topic. Then the receiver holds back messages that come too early, which delays them by up to two more seconds.
// Meanwhile the former consumer may still work on the same messages. In three rare cases, listed in docs/guarantees.md, the consumer cannot
// notice, and later messages of a key may come before earlier ones. No part of oncebox corrects that, not even package inbox. So a handler that
// needs the order compares the version of the aggregate. If the broker forgets to deliver some messages, the receiver asks for them again after
// some seconds without a message.
//
// No message can stop a consumer. A message that is encrypted, larger than Config.MaxReceivedBytes, or incomplete is received with the reason in
// its metadata under [messaging.UnreadableKey], and with at most 64 KiB of its payload. Package inbox makes a dead letter of it. Messages that
// Pulsar's client drops by itself never arrive: docs/guarantees.md lists them.
//
// [messaging.KeyShared] needs producers that do not batch: set Config.DisableBatching in every program that publishes to the topic.
//
// Keys move to other partitions when partitions are added to a topic; the order within a key is lost at that moment.
//
// # Errors
//
// [messaging.Permanent]: the message is too large, or its topic is not a plain name. [*messaging.TopicError]: the topic is missing, terminated,
// over its quota, or not permitted. [messaging.ErrBrokerDown]: there is no connection, and the message was not handed over.
// [messaging.ErrUnknown]: no receipt came in time. [messaging.ErrBehind]: an earlier message of the key in the same call has such an error.
//
// [Connect] waits for a broker that cannot be reached at the start. If a subscription belongs to another service, the error is a
// [*messaging.SourceError], which is permanent.
//
// After a lost connection producers and consumers connect again by themselves, without an error. A [messaging.Receiver] returns an error
// when the broker ends it for good.
//
// # Metrics
//
//   - oncebox.broker.published: messages by topic and outcome (ok, permanent, topic, broker_down, unknown, behind)
//   - oncebox.broker.publish.duration: seconds per call of Publish, by outcome (ok, failed)
//   - oncebox.broker.unwatched_topics: how often a check of a topic found that a declared subscription is gone, or that the topic has neither a
//     subscription nor retention, by topic
//
// Read first: broker.go:Connect and greet.go:greeter.greet, then publish.go:Broker.Publish and flight.go:flight.run, then receiver.go:receiver.Receive and
// turn.go:turn. Package internal/topics makes topics and subscriptions, internal/wire has the format of messages, internal/dropped finds messages that the
// client has lost.
package pulsar
