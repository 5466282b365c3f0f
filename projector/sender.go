package projector

import (
	"context"

	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/progress"
)

// sender takes a batch from its rows to their end: it sorts them, hands them to the broker, and writes down what
// became of them. All rows of the log take this way, however they were found: from the heads of the lanes, by a search,
// or by a scan for late rows. Others have ways of their own: a probe runs beside the passes, held rows are in other
// tables, and isolated rows are counted before they are sent.
type sender struct {
	fetch   *fetcher
	publish *publisher
	settle  *settler
	isolate *isolator
	rules   *progress.Rules
}

// deliver publishes rows and writes down what became of them. The error is that of the database or of the broker. The
// batch is never nil.
//
// Rows that were in flight when a former owner died come last, when all others are settled: if one of them kills this
// process, nothing that was published has to be published again.
func (s *sender) deliver(ctx context.Context, b *progress.Batch, rows []outboxdb.Row) (*progress.Batch, error) {
	b.Sort(rows)
	if len(b.Send) > 0 {
		b.Judge(s.publish.publish(ctx, b.Lanes, b.Send))
	}
	if err := s.settle.settle(ctx, b); err != nil {
		return b, err
	}
	if b.Trouble != nil {
		return b, b.Trouble
	}
	if len(b.Apart) == 0 {
		return b, nil
	}
	n, err := s.isolate.isolate(ctx, b.Lanes, b.Apart)
	b.Moved += n
	return b, err
}
