package dead

import (
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/operator"
)

// Statements of [Letters], to look at their plans.
const (
	ListDead   = listDead
	ShowDead   = showDead
	ListErrors = listDeadErrors
	HeldBehind = heldBehind
	ReplayDead = replayDead
	WakeHeads  = wakeHeads
)

// Page is the statement of [Letters.List], and its arguments.
func (l *Letters) Page(filter operator.DeadFilter, after *Letter, limit int) (string, []any) {
	return l.box.Page(filter, after, limit)
}

// Pick is the statement that chooses a batch, and its arguments.
func (l *Letters) Pick(filter operator.DeadFilter, after outboxdb.RowID, n int) (string, []any) {
	w := l.box.SQL.Where(filter)
	w.Add(l.box.SQL.Beyond, after.Lane, after.Seq)
	return l.box.Pick(w, n)
}
