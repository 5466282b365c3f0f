// Package publishing has the metrics and the span of one call of Publish, which are the same for each adapter of a broker.
//
//	t := publishing.New(to, "messaging/nats", "nats")
//	ctx, span := t.Start(ctx, len(msgs))
//	defer span.End()
//	return t.End(ctx, msgs, failed, began)
//
// Read first: instruments.go:Instruments.
package publishing
