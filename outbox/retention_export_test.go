package outbox

import (
	"context"

	"github.com/uptrace/bun"
)

// DropOne drops a partition that was found to be expired.
func (s *Store) DropOne(ctx context.Context, p Partition) error {
	p.log, p.published = families()[1], s.partition(family{}).published
	return s.retire(ctx, func(ctx context.Context, tx bun.Tx) error { return s.dropOne(ctx, tx, p) })
}
