package wire

// Binding says how the messages of one kind of broker carry the attributes of CloudEvents.
type Binding struct {
	// Prefix stands before the name of each attribute, for example "ce_". Required.
	Prefix string
	// ContentType is the name of the property with the content type of the payload. Default: "content-type".
	ContentType string
	// CarriesKey makes the routing key travel as the attribute partitionkey (CloudEvents extension "Partitioning"), for brokers whose messages have
	// no key. Default: false, the adapter puts the routing key into the message.
	CarriesKey bool
	// Encodes says that names and values of properties are percent-encoded, for brokers that carry only printable ASCII. Values are encoded as
	// in the HTTP binding of CloudEvents (section 3.1.3.2), names down to the token of RFC 9110 (section 5.6.2). Default: false.
	Encodes bool
	// MaxName is the length of the longest name of a property, in bytes. Metadata with a longer name travels in one property, as JSON. Default:
	// 0, no limit.
	MaxName int
}
