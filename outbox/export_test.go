package outbox

import (
	"context"

	"github.com/uptrace/bun"
)

// Text returns a statement with the store's schema in it.
func (s *Store) Text(constant string) string { return s.sql.Text(constant) }

// Finding is the statement of [Store.Find].
func (s *Store) Finding(ctx context.Context, db bun.IDB) (string, error) { return s.finding(ctx, db) }
