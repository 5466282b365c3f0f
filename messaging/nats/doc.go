// Package nats connects oncebox to NATS JetStream. It is a module of its own.
//
//	var cfg nats.Config
//	if err := config.Env("ONCEBOX_NATS_", &cfg); err != nil { ... }
//	broker, err := nats.Connect(ctx, &cfg)
//
// A topic is a stream, oncebox-order, with a subject for each partition: oncebox.order.0 and so on. A subscription is a durable consumer for each
// partition, billing@0 and so on; a [messaging.Shared] subscription is one consumer, billing. Characters that NATS does not allow in a name are escaped
// by wire.Escape. Messages have the form of the CloudEvents binding for NATS, in binary mode: the headers ce-id, ce-type and so on, with the routing key
// as ce-partitionkey and other metadata as meta-<key>. Package natsserver runs a server within a process.
//
// # Guarantees
//
// Every message that [Broker.Publish] reports as sent has an acknowledgement of the stream. Of each topic and key, one message at a time is under way,
// so the sent ones are a prefix. A message that is published again within Config.DuplicateWindow is stored once: the server compares an id that is made
// of the event's id and its content, so an event that was edited is not taken for a copy.
//
// Messages of a key are received in order, at least once. The server chooses one process for each partition, and that process begins at the first
// message that is not settled. It checks that the deliveries have no gap, and begins there again if they have one. A process that cannot be sure
// that the server still has it chosen, because it gets no answer, hands out no more of the messages that wait in it. A process that closes, or gives a
// partition to a process that has joined, waits for its handlers first (Config.HandoverTimeout). What a process that died has not settled comes
// after Config.TakeoverTimeout. After a takeover, messages behind the first unsettled one come again, also if they were settled.
//
// Only [messaging.Failover] and [messaging.Shared] exist.
//
// A stream keeps messages for Config.MaxAge, whether they were received or not. A stream that is full refuses messages, and they wait in the outbox.
//
// # Errors
//
// [messaging.Permanent]: the message is larger than the server or the stream takes, or its topic is not a valid name. [*messaging.TopicError]: the
// stream is missing, full, has no leader at present, has settings that break the guarantees, or the user has no permission. [messaging.ErrBrokerDown]:
// there is no connection, and the message was not handed over. [messaging.ErrUnknown]: no acknowledgement came in time. [messaging.ErrBehind]: an earlier
// message of the key in the same call has such an error.
//
// [Connect] waits for a server that cannot be reached at the start. If a subscription belongs to another service, the error is a
// [*messaging.SourceError], which is permanent.
//
// After a lost connection everything goes on by itself, without an error. A [messaging.Receiver] returns an error when its stream or a consumer was
// deleted, or the user has no permission any more.
//
// # Metrics
//
//   - oncebox.broker.published: messages by topic and outcome (ok, permanent, topic, broker_down, unknown, behind)
//   - oncebox.broker.publish.duration: seconds per call of Publish, by outcome (ok, failed)
//
// Read first: broker.go:Connect, then publish.go:Broker.Publish, then package internal/fetch. Package
// internal/streams makes streams and consumers, internal/binding has the format of messages.
package nats
