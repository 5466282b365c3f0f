// Package rabbitmq connects oncebox to RabbitMQ. It is the only package that links RabbitMQ's client.
//
//	var cfg rabbitmq.Config
//	if err := config.Env("ONCEBOX_RABBITMQ_", &cfg); err != nil { ... }
//	broker, err := rabbitmq.Connect(ctx, &cfg)
//
// All events are published to one topic exchange. The routing key of AMQP is the topic and the lane of the event, of which there are 32, by the hash of
// the event's own routing key: "order.@17". Each subscription has an exchange of its own, which is bound to the topic and gives each lane to one of the
// queues of the subscription. The queues are quorum queues with a single active consumer. Other programs may publish with the topic alone as routing
// key, and bind queues of their own to "order.*".
//
// Payloads are sent unchanged. The other fields of an event are headers, in the binary mode of CloudEvents: cloudEvents_id, cloudEvents_type and so
// on; other metadata is sent as meta-<key>. A message from a program that does not use this format is received too.
//
// # Guarantees
//
// Every message that [Broker.Publish] reports as sent was confirmed by the broker, which a quorum queue does when a majority of its nodes has stored
// it, and is in at least one queue. Of each (topic, key) the sent messages are a prefix of the messages of that key in the call: each is sent when
// the one before is confirmed.
//
// RabbitMQ keeps a message only for subscriptions that exist when it is published. A message that no subscription gets is never confirmed: the error
// is a [*messaging.TopicError]. So subscriptions are declared before anything is published, which oncebox.App does for its own.
//
// Messages of a key are received in order, at least once. After a crash, a lost connection or a takeover the broker delivers all messages that were
// not settled again, in their order, before later ones.
//
// With [messaging.Failover] the consumer that came first is the active one of all queues, and another takes over when it leaves: further processes
// stand by. [messaging.Shared] has one queue, and gives each message to any consumer. There is no [messaging.KeyShared].
//
// # Errors
//
// [messaging.Permanent]: the payload or the headers are too large. [*messaging.TopicError]: no queue gets the message, a queue is full, or the
// exchange is missing or not permitted. [messaging.ErrBrokerDown]: there is no connection, or the broker has an alarm and takes no messages.
// [messaging.ErrUnknown]: no receipt came in time. [messaging.ErrBehind]: an earlier message of the key in the same call has such an error.
//
// After a lost connection everything is made again by itself, without an error. A [messaging.Receiver] returns an error when the broker refuses it.
//
// # Metrics
//
//   - oncebox.broker.published: messages by topic and outcome (ok, permanent, topic, broker_down, unknown, behind)
//   - oncebox.broker.publish.duration: seconds per call of Publish, by outcome (ok, failed)
//
// Read first: broker.go:Connect and topology.go:topology, then publish.go:Broker.Publish and sender.go:sender, then receiver.go:receiver.run and
// attachment.go:attachment.
package rabbitmq
