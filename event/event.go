package event

// Event is something that has happened in the domain. Its type is named in the past tense, and its value does not change.
type Event interface {
	// EventType returns the logical name, such as "order.placed". It is unique in a [Registry], and stays the same when the Go type is renamed.
	EventType() string
}

// Versioned is an [Event] whose schema has a version. An event without this method has version 1.
type Versioned interface {
	Event
	// SchemaVersion returns the version of the payload's schema, from 1.
	SchemaVersion() int
}

// Described is an [Event] with metadata of its own.
type Described interface {
	Event
	// Metadata returns entries that are added to the metadata of the context, and replace entries with the same key.
	Metadata() Metadata
}

// Aggregate is a part of the domain that is loaded, changed and saved as a whole. Its events are ordered. Embedding [Recorder] gives the
// last two methods.
type Aggregate interface {
	// AggregateType returns the logical name of the kind, such as "order". By default it is also the topic of the events.
	AggregateType() string
	// AggregateID returns the id, unique within type and tenant.
	AggregateID() string
	// AggregateVersion returns the stored version, without the recorded events. The n recorded events get the versions +1 to +n, and saving the
	// aggregate writes +n. Return a field that only loading and saving set: recording an event does not change it, so it stays right when a unit of
	// work is run again. An aggregate that returns 0 although it was saved before is unversioned.
	AggregateVersion() int64
	// RecordedEvents returns the events recorded since the last ClearEvents, oldest first.
	RecordedEvents() []Recorded
	// ClearEvents removes the recorded events. The unit of work calls it after COMMIT and never before.
	ClearEvents()
}
