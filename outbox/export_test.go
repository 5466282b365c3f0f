package outbox

import (
	"context"

	"github.com/uptrace/bun"
)

// Finding is the statement of [Store.Find].
func (s *Store) Finding(ctx context.Context, db bun.IDB) (string, error) { return s.finding(ctx, db) }
