// Package event holds the words of the domain: what happened, to what, and how it is described when it travels.
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
// One [Envelope] describes an event the whole way: in the outbox, on the wire and at the handler. An event keeps its
// id, its order per aggregate and its bytes exactly; payloads are never re-encoded on the way.
//
// Every identifier passes [ValidateIdentifier] before it reaches SQL or a broker: valid UTF-8, no control characters,
// at most [MaxIdentifier] bytes. Two different identifiers can therefore never be folded into one by an encoder.
//
// Types change, and events that are stored do not: versions, upcasters and aliases keep them readable, and package eventtest
// has a test that fails when one of these was forgotten.
//
// With a [Sealer] payloads are encrypted wherever they are stored and on the wire, and to erase a key is to erase all
// that was sealed with it, in every table, topic and backup. examples/encryption has keys per tenant.
//
// # Errors
//
// [ErrUnknownType] and [*DecodeError] come from a [Registry], [ErrErased] from its sealer; [*InvalidError] (matched by [ErrInvalid]) names the field
// of an envelope that was refused and why.
//
// Read first: event.go, recorder.go:Recorder.Record, then registry.go:Registry.Encode and envelope.go:Envelope.
package event
