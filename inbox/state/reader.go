// Package state reads the state of an inbox for operators: the consumers of a database with their processes and connections, the messages
// that wait at the broker and in the database, and consumers that make no progress. A process needs no handlers to use it.
//
//	stats, err := box.State().Stats(ctx)
//	consumers, err := box.State().Consumers(ctx)
//
// Read first: consumers.go:Reader.Consumers, states.go:states.judge, trouble.go:Consumer.trouble.
package state

import (
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/inbox/internal/store"
)

// Reader reads the state of an inbox. It is safe for concurrent use.
type Reader struct {
	h      *store.Handle
	gauges *gauges
}

// New is for package inbox: see inbox.Inbox.State.
func New(h *store.Handle, m metric.Meter) *Reader { return &Reader{h: h, gauges: newGauges(m)} }

// seconds converts a number of seconds.
func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
