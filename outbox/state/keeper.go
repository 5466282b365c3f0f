package state

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/internal/history"
	"github.com/oncebox/oncebox/operator"
)

// countedWithin is the longest time between two readings whose traffic is counted. A leader that has read nothing for as long may have been replaced,
// and its successor has counted the same traffic: see package leader.
const countedWithin = 45 * time.Second

// Keeper reads the statistics for the metrics, and keeps their history. It is for the process that was chosen to do so.
type Keeper struct {
	reader *Reader
	writer history.Writer
	before Traffic // of the last reading; zero: unknown
}

// NewKeeper returns a keeper that has read nothing yet, for package projector.
func NewKeeper(s *Reader) *Keeper {
	return &Keeper{reader: s, writer: history.Writer{
		Part: operator.PartOutbox, Run: s.box.Run, Off: s.box.NoHistory, Tidies: true, Log: s.box.Log,
	}}
}

// Read is [Reader.Stats]. Unless outbox.Config.NoHistory is set it also enters what it read into the history, see [Reader.History].
func (k *Keeper) Read(ctx context.Context) (Stats, error) {
	st, err := k.reader.Stats(ctx)
	if err != nil {
		k.before = Traffic{} // another process may lead before the next reading, and count what happens until then
		return st, err
	}
	if k.writer.Off {
		return st, nil
	}
	now, err := k.reader.Traffic(ctx)
	if err != nil {
		k.before = Traffic{}
		k.writer.Warn(ctx, err)
		return st, nil
	}
	f := operator.Figures{Waiting: st.Backlog(), Parked: operator.Unknown, Failing: st.Failed, Dead: st.Dead, Oldest: st.OldestAge}
	if took := now.At.Sub(k.before.At); took > 0 && took <= countedWithin && now.Recorded >= k.before.Recorded && now.Left >= k.before.Left {
		f.Came, f.Went, f.Counted = now.Recorded-k.before.Recorded, now.Left-k.before.Left, took
	}
	k.before = now
	k.writer.Note(ctx, k.reader.box.DB, map[string]operator.Figures{"": f})
	return st, nil
}
