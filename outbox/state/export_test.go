package state

// EventsByAggregate is the statement of [Reader.EventsByAggregate].
var EventsByAggregate = eventsByAggregate
