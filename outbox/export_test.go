package outbox

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
)

// Statements that tests run in transactions of their own, and explain.
const (
	HoldRows      = holdRows
	FetchFew      = fetchFew
	FetchMany     = fetchMany
	LookRows      = lookRows
	LookTenants   = lookTenants
	LookFar       = lookFar
	PickRows      = pickRows
	FailingRows   = failingRows
	CountAll      = countAll
	CountFront    = countFront
	OldestOverdue = oldestOverdue
	LaneStates    = laneStates
	SettleRows    = settleRows
	SettleHeld    = settleHeld
	QueueRows     = queueRows
	DueRows       = dueRows
	ScanDue       = lookDue
	FetchDueRows  = pickDue
	NextDue       = nextDue
	GiveUpHeld    = giveUpHeld
	ReleaseKeys   = releaseKeys
	LoadBlocks    = loadBlocks
	Renew         = renew
	SwitchOff     = switchOff
	LookLate      = lookLate
)

// PagesOnce are the settings that [Relay.ScanLate] switches off.
func PagesOnce() []string { return pagesOnce() }

// Statistics looks at so many rows in front of each lane.
func Statistics(front int) string { return fmt.Sprintf(statistics, front) }

// Text returns a statement with the store's schema in it.
func (s *Store) Text(constant string) string { return s.sql.Text(constant) }

// LockBuckets is how many locks the ordering keys share.
const LockBuckets = lockBuckets

// LaneHash is the frozen hash.
func LaneHash(key string) uint64 { return laneHash(key) }

// Finding is the statement of [Store.Find].
func (s *Store) Finding(ctx context.Context, db bun.IDB) (string, error) { return s.finding(ctx, db) }
