package outbox

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/deadletter"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// deadBatch is how many dead letters a transaction moves, in which their lanes stand still.
const deadBatch = 500

// newDead returns the outbox as the engine of dead letters knows it.
func (s *Store) newDead() *deadletter.Box[DeadLetter] {
	return &deadletter.Box[DeadLetter]{
		Name: string(operator.PartOutbox),
		SQL: deadletter.SQL{
			ID: "d.id", List: listDead, After: "(d.died_at, d.seq) > (%s::timestamptz, %s::bigint)", Show: showDead, Count: countDead,
			Errors: listDeadErrors, Pick: pickDead, Beyond: "(d.lane, d.seq) > (%s::smallint, %s::bigint)", Lock: touchLanes,
			Edit: editDead, Replay: replayDead, Discard: discardDead, Expire: forgetDead, Settle: wakeHeads,
		},
		Run: s.adHoc(), DB: func(context.Context) bun.IDB { return s.db }, Within: s.withinDead,
		Scan: func(scan pgsql.Scan, d *DeadLetter) error {
			return outboxdb.ScanRow(scan, &d.Row, &d.DiedAt, &d.Error, &d.Holds)
		},
		Place:    func(d *DeadLetter) []any { return []any{d.DiedAt, d.Sequence} },
		NewBatch: func() deadletter.Batch { return &deadRows{} }, BatchSize: deadBatch,
		MaxPayload: s.cfg.MaxPayload, Log: s.log,
	}
}

// withinDead runs fn in a transaction, and wakes projectors after its commit if it has moved dead letters.
func (s *Store) withinDead(ctx context.Context, fn func(context.Context, bun.IDB) (bool, error)) error {
	moved := false
	err := s.db.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) (err error) {
		moved, err = fn(ctx, tx)
		return err
	})
	if err == nil && moved {
		s.Wake()
	}
	return err
}

// deadRows are the dead letters of one transaction, in the order of their lanes.
type deadRows struct {
	lanes []int16
	seqs  []int64
	keys  []string
}

func (b *deadRows) Add(scan pgsql.Scan) error {
	var (
		row outboxdb.RowID
		key string
	)
	if err := scan(&row.Lane, &row.Seq, &key); err != nil {
		return err
	}
	b.lanes, b.seqs, b.keys = append(b.lanes, row.Lane), append(b.seqs, row.Seq), append(b.keys, key)
	return nil
}

func (b *deadRows) Len() int     { return len(b.seqs) }
func (b *deadRows) Place() []any { return []any{b.lanes[len(b.lanes)-1], b.seqs[len(b.seqs)-1]} }
func (b *deadRows) Locks() []any { return []any{b.lanes} }
func (b *deadRows) Refs() []any  { return []any{b.lanes, b.seqs} }
func (b *deadRows) Keys() []any  { return []any{b.lanes, b.keys} }

func (s *Store) adHoc() *pgsql.Runner { return s.box.AdHoc() }
