package outbox

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
)

// Statements that tests explain.
const (
	FailingRows   = failingRows
	CountAll      = countAll
	CountFront    = countFront
	OldestOverdue = oldestOverdue
	LaneStates    = laneStates
)

// Statistics looks at so many rows in front of each lane.
func Statistics(front int) string { return fmt.Sprintf(statistics, front) }

// Text returns a statement with the store's schema in it.
func (s *Store) Text(constant string) string { return s.sql.Text(constant) }

// Finding is the statement of [Store.Find].
func (s *Store) Finding(ctx context.Context, db bun.IDB) (string, error) { return s.finding(ctx, db) }
