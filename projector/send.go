package projector

import (
	"context"

	"github.com/oncebox/oncebox/internal/outboxdb"
)

// sender takes a batch from its rows to their end: it sorts them, hands them to the broker, and writes down what
// became of them.
type sender struct {
	fetch   *fetcher
	publish *publisher
	settle  *settler
	isolate *isolator
	rules   *rules
}

// deliver publishes rows and writes down what became of them. The error is that of the database or of the broker. The
// batch is never nil.
//
// Rows that were in flight when a former owner died come last, when all others are settled: if one of them kills this
// process, nothing that was published has to be published again.
func (s *sender) deliver(ctx context.Context, b *batch, rows []outboxdb.Row) (*batch, error) {
	b.sort(rows)
	if len(b.send) > 0 {
		b.errs = s.publish.publish(ctx, b.lanes, b.send)
	}
	b.judge()
	if err := s.settle.settle(ctx, b); err != nil {
		return b, err
	}
	if b.trouble != nil {
		return b, b.trouble
	}
	n, err := s.isolate.isolate(ctx, b.lanes, b.apart)
	b.moved += n
	return b, err
}
