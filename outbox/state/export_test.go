package state

// EventsByAggregate is the statement of [Reader.EventsByAggregate].
const EventsByAggregate = eventsByAggregate
