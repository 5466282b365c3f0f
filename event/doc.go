// Package event describes what has happened in the domain: the event, the aggregate that it belongs to, and the envelope in which it travels.
//
// A domain package embeds [Recorder] in its aggregates and records plain structs that implement [Event]. It needs
// nothing else of the framework, and this package imports the standard library only, so a domain model that uses it
// links no database, no broker and no telemetry.
//
//	type OrderPlaced struct {
//		OrderID string `json:"order_id"`
//		Total   int64  `json:"total"`
//	}
//
//	func (OrderPlaced) EventType() string { return "order.placed" }
//
//	type Order struct {
//		event.Recorder `bun:"-"`
//		ID      string `bun:",pk"`
//		Version int64
//	}
//
//	func (o *Order) AggregateType() string   { return "order" }
//	func (o *Order) AggregateID() string     { return o.ID }
//	func (o *Order) AggregateVersion() int64 { return o.Version }
//
// # Guarantees
//
// One [Envelope] describes an event the whole way: in the outbox, on the wire and at the handler. An event keeps its id, its order per aggregate and
// its bytes exactly. Payloads are never re-encoded on the way.
//
// Every identifier passes [ValidateIdentifier] before it reaches SQL or a broker: valid UTF-8, no control characters,
// at most [MaxIdentifier] bytes. Two different identifiers can therefore never be folded into one by an encoder.
//
// The Go types of events change, but stored events do not. Versions, upcasters and aliases keep old events readable, and package eventtest
// has a test that fails if you have forgotten one of these.
//
// With a [Sealer] payloads are encrypted wherever they are stored, and at the broker. If you erase a key, everything that was sealed with it is
// unreadable, in every table, topic and backup. examples/encryption has keys per tenant.
//
// # Errors
//
// [ErrUnknownType] and [*DecodeError] come from a [Registry], [ErrErased] from its sealer. [*InvalidError] (matched by [ErrInvalid]) names the field
// of an envelope that was refused and why.
//
// Read first: event.go, recorder.go:Recorder.Record, then registry.go:Registry.Encode and envelope.go:Envelope.
package event
