package upkeep

import (
	"context"

	"github.com/uptrace/bun"
)

// DropOne drops a partition that was found to be expired.
func (u *Upkeep) DropOne(ctx context.Context, p Partition) error {
	p.log, p.published = families()[1], u.partition(family{}).published
	return u.retire(ctx, func(ctx context.Context, tx bun.Tx) error { return u.dropOne(ctx, tx, p) })
}
