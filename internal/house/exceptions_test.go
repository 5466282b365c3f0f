package main

// exceptions were made with the rules, and go as the code they name is mended.
var exceptions = []exception{}

// explained are the pairs that may stay as they are.
var explained = []explanation{
	{
		"event/metadata.go tenantKey", "internal/pgsql/guard.go unitKey",
		"a value of a context is set and read in the form that Go's documentation gives. A helper for both would save no line and hide the type of the key.",
	},
	{
		"messaging/nats/config.go Config", "messaging/pulsar/config.go Config",
		"settings that each adapter has, in one order. docs/adr/0106 says why no struct has them once; a test of internal/configdoc keeps the texts equal.",
	},
}
