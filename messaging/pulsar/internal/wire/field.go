package wire

import "github.com/oncebox/oncebox/event"

// text is a field of an envelope that is a text, and the property that carries it. "" is not sent.
type text struct {
	property string
	at       *string
}

// texts lists the texts of an envelope, for writing and for reading. A new field of the envelope that travels is a line here, or in numbers.
func texts(env *event.Envelope) [9]text {
	return [...]text{
		{PropID, &env.ID},
		{PropType, &env.Type},
		{PropSource, &env.Source},
		{PropSubject, &env.AggregateID},
		{PropDataSchema, &env.SchemaID},
		{PropTenantID, &env.TenantID},
		{PropAggregateType, &env.AggregateType},
		{PropContentType, &env.ContentType},
		{PropOrderingKey, &env.Delivery.OrderingKey},
	}
}

// number is a field of an envelope that is a number, and the property that carries it. 0 is not sent.
type number struct {
	property string
	at       *int64
}

// numbers lists the numbers of an envelope. The version of the schema is an int and stands alone.
func numbers(env *event.Envelope) [2]number {
	return [...]number{
		{PropAggregateVersion, &env.AggregateVersion},
		{PropSequence, &env.Sequence},
	}
}

// ownProps are the properties that do not stand for metadata of the same name.
var ownProps = func() map[string]bool { //nolint:gochecknoglobals // a constant
	own := map[string]bool{PropSpecVersion: true, PropTime: true, PropSchemaVersion: true, PropCorrelationID: true, PropCausationID: true}
	for _, t := range texts(&event.Envelope{}) {
		own[t.property] = true
	}
	for _, n := range numbers(&event.Envelope{}) {
		own[n.property] = true
	}
	return own
}()
