package operator

// MessageRef identifies a message of a consumer that waits in the database: parked, or as a dead letter.
type MessageRef struct {
	// MessageKey is the id of the message if that is a UUIDv7, else a UUIDv8 made of its source and id.
	MessageKey string
	// Consumer is the name of the consumer. TenantID and Source are those of the message.
	Consumer, TenantID, Source string
}
