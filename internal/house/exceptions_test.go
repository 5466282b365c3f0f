package main

// exceptions were made with the rules, and go as the code they name is mended.
var exceptions = []exception{
	{ruleExported, "inbox", 108},
	{ruleExported, "internal/pgsql", 113},
	{ruleExported, "outbox", 89},
	{ruleFiles, "idempotency", 23},
	{ruleFiles, "inbox", 37},
	{ruleFiles, "outbox", 27},
	{ruleFiles, "projector", 37},
	{ruleMethodFiles, "idempotency.Store", 11},
	{ruleMethodFiles, "inbox.Inbox", 25},
	{ruleMethodFiles, "inbox.wrapped", 13},
	{ruleMethodFiles, "outbox.Store", 49},
	{ruleMethodFiles, "projector.worker", 21},
	{ruleMethodFiles, "uow.root", 12},
	{ruleFileLines, "projector/worker.go", 544},
	{ruleLines, "inbox", 5182},
	{ruleLines, "projector", 5362},
	{ruleEmbedded, "idempotency.Middleware embeds idempotency.Store", 26},
	{ruleRepeated, "product", 32},
}

// explained are the pairs that may stay as they are.
var explained = []explanation{}
