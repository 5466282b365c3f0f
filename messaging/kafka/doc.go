// Package kafka connects oncebox to Apache Kafka 4, with the client franz-go. It is a module of its own.
//
//	var cfg kafka.Config
//	if err := config.Env("ONCEBOX_KAFKA_", &cfg); err != nil { ... }
//	broker, err := kafka.Connect(ctx, &cfg)
//
// A [Broker] publishes, subscribes, and makes topics. Payloads are sent unchanged. The other fields of an event are sent as headers, in the binary mode
// of the CloudEvents binding for Kafka: ce_id, ce_type, ce_source, ce_time and so on, and content-type. Other metadata is sent as meta-<key>. The routing
// key is the key of the message, and decides its partition by murmur2, as with all clients. A message from a program that does not use this format is
// received too: its headers become the metadata, and its place in the topic becomes its id.
//
// A topic has the name that oncebox knows, with Config.Prefix before it; characters that Kafka does not allow are escaped (wire.Escape). Kafka does not
// allow two topics whose names differ only in "." and "_", because its metrics take them for the same. A subscription is the consumer group
// <topic>:<subscription>.
//
// # Guarantees
//
// Every message that [Broker.Publish] reports as sent was stored by all replicas in sync (acks=all), and the sent messages of a (topic, key) are a prefix of
// the messages of that key in the call. Each call has an idempotent producer of its own. After an outcome that is not known the producer is ended, so
// nothing is sent behind the back of the call. How many copies "in sync" are is the topic's min.insync.replicas: with 1, Kafka's default, a message can be
// lost together with one broker.
//
// Messages of a key are received in order, at least once. The consumers of a group share the partitions, so only [messaging.Failover] exists. Messages of one
// partition may be handled side by side. Kafka keeps one offset for a partition: the receiver commits that of the first message that is not settled, every
// Config.CommitInterval. So after a crash, or when a partition moves, messages that were settled behind an unsettled one come again.
//
// A partition moves to another consumer only after its messages in work are settled and committed, or after Config.HandoverTimeout. A consumer that is
// silent for Config.SessionTimeout loses its partitions at once; what it still works on comes again elsewhere. Its late acknowledgements do nothing.
//
// A subscription starts at the earliest message. Kafka deletes messages after the topic's retention.ms, whether they were consumed or not. If that happens,
// the log says how many were deleted. If the broker has lost messages and others have taken their offsets, the receiver begins where the logs part. Kafka
// deletes the offsets of a group without consumers after offsets.retention.minutes, 7 days; the subscription then
// receives again what the topic still has.
//
// A process spreads the keys of a topic over the partitions that the topic had at its first use. If partitions are added, the order of each key stays as it
// is, until the process ends. The next one uses all partitions: then a key may have moved, and its later messages may overtake the ones that wait in the
// former partition. So let the subscriptions catch up before the restart.
//
// No other program can consume in the group of a subscription, because the consumers agree on their partitions under a name of their own. Only a consumer
// of Kafka's newer protocol (group.protocol=consumer) can; the doctor reports it.
//
// # Errors
//
// [messaging.Permanent]: the message is too large, or its topic cannot be a topic of Kafka. [*messaging.TopicError]: the topic is missing, or has too few
// replicas, or a right on it is missing; the text has the command that mends it. [messaging.ErrBrokerDown]: nothing was sent. [messaging.ErrUnknown]: no
// receipt came in time. [messaging.ErrBehind]: an earlier message of the key in the same call has such an error.
//
// [Connect] waits for a broker that cannot be reached at the start. If a subscription belongs to another service, the error is a
// [*messaging.SourceError], which is permanent.
//
// # Metrics
//
//   - oncebox.broker.published: messages by topic and outcome (ok, permanent, topic, broker_down, unknown, behind)
//   - oncebox.broker.publish.duration: seconds per call of Publish, by outcome (ok, failed)
//
// Read first: broker.go:Connect, then publish.go:Broker.Publish and flight.go:flight.run, then receiver.go:receiver.Receive, fetch.go:receiver.add,
// account.go:account and rebalance.go:receiver.revoked.
package kafka
