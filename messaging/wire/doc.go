// Package wire writes envelopes as messages of a broker and reads them back: CloudEvents in binary mode, with the attributes in the
// properties (headers) of the message and the data in its payload. Adapters of brokers use it.
//
//	format := wire.NewFormat(wire.Binding{Prefix: "ce_"})
//	props := format.Properties(nil, &env) // or Append, for a list
//	env := format.Envelope(&wire.Received{Topic: "order", Key: "o-7", Properties: props, Payload: payload})
//
// A [Binding] is what differs between brokers: the prefix of the attributes, and which characters a property may have. The prefixes are
// those of the CloudEvents protocol bindings for Kafka, AMQP and NATS.
//
// # Guarantees
//
// An envelope that is written and read is the same envelope, whatever its texts contain; of its Delivery only the ordering key travels. Any
// message of another program becomes an envelope with an id, so that it is handled once: values that do not fit their field stay in the
// metadata. The same message always becomes the same envelope. An unreadable message becomes an envelope with messaging.UnreadableKey,
// which the inbox stores as a dead letter, with a bounded part of its content.
//
// [Escape] makes any name acceptable to a broker, and [Unescape] restores it.
//
// Read first: binding.go:Binding, format.go:Format.Append, then decode.go:Format.Envelope.
package wire
