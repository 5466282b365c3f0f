package receipts

import (
	"context"

	"github.com/oncebox/oncebox/event"
)

// Window says how the messages of one call may be under way at the same time.
type Window struct {
	// InFlight is how many messages may be without a receipt. Default: 0, all of the call.
	InFlight int
	// Holds reports whether the next message of the same topic and key waits for the receipt of the message with this index: the client
	// could store the next one although this one fails. It is called once for each message, just before Send. Default: nil, no message waits.
	Holds func(i int) bool
	// Flush sends what the client collects. It is called before the window waits for receipts; an error ends the call. Default: nil, the client
	// sends by itself.
	Flush func(ctx context.Context) error
	// Breaks reports whether the error of a receipt is a fault of the connection, after which nothing more of the call is handed over. Default:
	// nil, every error concerns only its message and later ones of its key.
	Breaks func(err error) bool
}

// Send hands over the message with the index i of the call. receipt is called with the broker's answer, nil or an error of one of the classes
// of package messaging: by the client, at any time and in any goroutine, or by Send itself. Send may block until the client has room, and
// must return when ctx is done. An error means that the connection has a fault: nothing more is handed over, and the outcome of this message
// is unknown unless receipt was called.
type Send func(ctx context.Context, i int, receipt func(error)) error

// Publish sends the messages at these indexes, in this order; nil means all. It returns the errors by index. sound reports that the connection
// has no fault and that every message that was handed over has its receipt. If not, the client may still send some of the messages that are
// reported as unknown: close the connection, or make sure that it sends nothing more.
func (w *Window) Publish(ctx context.Context, msgs []event.Envelope, indexes []int, send Send) (failed map[int]error, sound bool) {
	if indexes == nil {
		indexes = make([]int, len(msgs))
		for i := range indexes {
			indexes[i] = i
		}
	}
	c := newCall(w, msgs, indexes, send)
	c.run(ctx)
	return c.land(), c.flying == 0 && !c.broken
}
