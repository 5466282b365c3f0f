package dead

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/deadletter"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// batchSize is how many dead letters a transaction moves. Their lanes stand still meanwhile.
const batchSize = 500

// New is for package outbox: see outbox.Store.Dead.
func New(box *outboxdb.Handle) *Letters { return &Letters{engine(box)} }

// engine returns the outbox as the engine of dead letters knows it.
func engine(box *outboxdb.Handle) *deadletter.Box[Letter] {
	return &deadletter.Box[Letter]{
		Name: string(operator.PartOutbox),
		SQL: deadletter.SQL{
			ID: "d.id", List: listDead, After: "(d.died_at, d.seq) > (%s::timestamptz, %s::bigint)", Show: showDead, Count: countDead,
			Errors: listDeadErrors, Pick: pickDead, Beyond: "(d.lane, d.seq) > (%s::smallint, %s::bigint)", Lock: touchLanes,
			Edit: editDead, Replay: replayDead, Discard: discardDead, Expire: forgetDead, Settle: wakeHeads,
		},
		Run: box.AdHoc(), DB: func(context.Context) bun.IDB { return box.DB },
		Within: func(ctx context.Context, fn func(context.Context, bun.IDB) (bool, error)) error {
			return within(ctx, box, fn)
		},
		Scan: func(scan pgsql.Scan, d *Letter) error {
			return outboxdb.ScanRow(scan, &d.Row, &d.DiedAt, &d.Error, &d.Fingerprint, &d.Holds)
		},
		Place:    func(d *Letter) []any { return []any{d.DiedAt, d.Sequence} },
		NewBatch: func() deadletter.Batch { return &rows{} }, BatchSize: batchSize,
		MaxPayload: box.MaxPayload, Log: box.Log,
	}
}

// within runs fn in a transaction. After its commit it wakes the relays if fn has moved dead letters.
func within(ctx context.Context, box *outboxdb.Handle, fn func(context.Context, bun.IDB) (bool, error)) error {
	moved := false
	err := box.DB.RunInTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) (err error) {
		moved, err = fn(ctx, tx)
		return err
	})
	if err == nil && moved {
		box.Wake(outboxdb.AllLanes)
	}
	return err
}

// rows are the dead letters of one transaction, in the order of their lanes.
type rows struct {
	lanes []int16
	seqs  []int64
	keys  []string
}

func (b *rows) Add(scan pgsql.Scan) error {
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

func (b *rows) Len() int     { return len(b.seqs) }
func (b *rows) Place() []any { return []any{b.lanes[len(b.lanes)-1], b.seqs[len(b.seqs)-1]} }
func (b *rows) Locks() []any { return []any{b.lanes} }
func (b *rows) Refs() []any  { return []any{b.lanes, b.seqs} }
func (b *rows) Keys() []any  { return []any{b.lanes, b.keys} }
