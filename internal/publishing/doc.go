// Package publishing has the metrics and the span of one call of Publish, which are the same for each adapter of a broker.
//
//	t := publishing.New(to, "messaging/nats", "nats")
//	return t.Call(ctx, msgs, func(ctx context.Context) (failed map[int]error) { ... })
//
// Read first: instruments.go:Instruments.Call.
package publishing
