package main

// exceptions were made with the rules, and go as the code they name is mended.
var exceptions = []exception{}

// explained are the pairs that may stay as they are.
var explained = []explanation{
	{
		"messaging/nats/config.go Config", "messaging/pulsar/config.go Config",
		"settings that each adapter has, in one order. docs/adr/0106 says why no struct has them once; a test of internal/configdoc keeps the texts equal.",
	},
}
