package event

// Event is something that happened in the domain, past tense, immutable.
type Event interface {
	// EventType is the logical name, stable over renames of the Go type and unique in a [Registry]: "order.placed".
	EventType() string
}

// Versioned is an [Event] whose schema has a version. Without it the version is 1.
type Versioned interface {
	Event
	// SchemaVersion is the version of the payload's schema, from 1.
	SchemaVersion() int
}

// Described is an [Event] that brings metadata of its own, which wins over the metadata of the context.
type Described interface {
	Event
	// Metadata is added to that of the context, and wins where both have a key.
	Metadata() Metadata
}

// Aggregate is a consistency boundary of the domain: it is loaded, changed and saved as a whole, and what happened to
// it is announced in order. Embedding [Recorder] gives the last two methods.
type Aggregate interface {
	// AggregateType is the logical name of the kind: "order". By default it is also the topic of the events.
	AggregateType() string
	// AggregateID identifies the instance within its type and tenant.
	AggregateID() string
	// AggregateVersion is the version as stored, before the recorded events. They get the versions +1 ... +n, and
	// saving the aggregate writes +n. Return a field that only loading and saving set: recording an event does not change it, so
	// it is right also in a unit that is run again. An aggregate that returns 0 although it was saved before is unversioned.
	AggregateVersion() int64
	// RecordedEvents returns what was recorded and not yet cleared, oldest first.
	RecordedEvents() []Recorded
	// ClearEvents forgets the recorded events. The unit of work calls it after COMMIT and never before.
	ClearEvents()
}
