package outboxdb

// Values of the column status of outbox_messages.
const (
	StatusNew        = "NEW"        // stored, or waiting behind another row or for its time
	StatusPublishing = "PUBLISHING" // fetched by the owner of its lane; an approximation
	StatusSent       = "SENT"       // confirmed by the broker
	StatusFailed     = "FAILED"     // refused, to be tried again
	StatusDead       = "DEAD"       // given up
)
