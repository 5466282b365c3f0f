package messaging

import "context"

// Instrument returns a handler that has h handle each message in a span, measured, and with panics turned into errors, as a
// [Consumer] does: for code that hands messages to handlers itself. Of cfg it uses the name and the telemetry.
func Instrument(h Handler, cfg *ConsumerConfig) Handler {
	c := cfg.WithDefaults()
	t := newTelemetry(&c)
	return HandlerFunc(func(ctx context.Context, m *Message) error { return t.handle(ctx, h, m) })
}
