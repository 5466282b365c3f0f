package wire

import "github.com/oncebox/oncebox/event"

// The attributes of CloudEvents that a message carries, and oncebox's extensions, without the prefix of the [Binding].
const (
	SpecVersion      = "specversion"
	ID               = "id"
	Type             = "type"
	Source           = "source"
	Subject          = "subject" // the id of the aggregate
	Time             = "time"
	DataSchema       = "dataschema"
	PartitionKey     = "partitionkey" // the routing key, see Binding.CarriesKey
	TenantID         = "tenantid"
	AggregateType    = "aggregatetype"
	AggregateVersion = "aggregateversion"
	Sequence         = "sequence"
	SchemaVersion    = "schemaversion"
	CorrelationID    = "correlationid"
	CausationID      = "causationid"
	OrderingKey      = "orderingkey"
	Metadata         = "metadata" // metadata whose names are too long, see Binding.MaxName
)

// MetaPrefix stands before the name of a property that carries metadata.
const MetaPrefix = "meta-"

// version is the version of CloudEvents.
const version = "1.0"

// contentType marks the text that is no attribute: its property is Binding.ContentType.
const contentType = ""

// textNames and numberNames are the attributes of texts and numbers, in the same order.
//
//nolint:gochecknoglobals // constants
var (
	textNames   = [...]string{ID, Type, Source, Subject, DataSchema, TenantID, AggregateType, contentType, OrderingKey, PartitionKey}
	numberNames = [...]string{AggregateVersion, Sequence}
)

// texts lists the texts of an envelope, for writing and for reading. "" is not sent. A new field of the envelope that travels is an entry
// here and in textNames, or in the two lists of numbers. The routing key is the last: only some bindings carry it.
func texts(env *event.Envelope) [len(textNames)]*string {
	return [...]*string{
		&env.ID, &env.Type, &env.Source, &env.AggregateID, &env.SchemaID, &env.TenantID, &env.AggregateType, &env.ContentType,
		&env.Delivery.OrderingKey, &env.RoutingKey,
	}
}

// numbers lists the numbers of an envelope. 0 is not sent. The version of the schema is an int and stands alone.
func numbers(env *event.Envelope) [len(numberNames)]*int64 {
	return [...]*int64{&env.AggregateVersion, &env.Sequence}
}
