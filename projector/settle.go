package projector

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/leases"
	"github.com/oncebox/oncebox/projector/internal/measure"
	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// settler records the result of each row. Confirmed rows that could not be recorded are kept and recorded later, see
// unsettled.
//
// A row of the log is recorded in one of four ways. A published row stays in the log, and the position of its lane moves
// (Record), or it goes to the history, or is deleted (Settle). A row that was refused, waits or died goes to the held
// rows or the dead letters (Hold). A delayed row without a key goes there without a block (Delay). Each statement
// compares the lease in the database, so a worker that has lost its lane records nothing, however late it notices.
type settler struct {
	db        lanedb.Lanes
	keeps     func() bool // published rows are kept
	owned     *leases.Owned
	server    *server
	due       *schedule.DueTime
	rules     *progress.Rules
	limit     limit
	telemetry *measure.Instruments
	log       *slog.Logger

	unsettled []unsettled // confirmed rows whose settle failed
}

// settle writes down what became of the rows, in three steps: published rows, then delayed rows without a key, then
// all other rows that leave the lane. Published rows come first, because they are the only ones that the broker would
// store twice if a later step fails. If the first step fails, it is tried again before the next fetch, see unsettled. After
// a failure of the others, the next fetch finds the rows that are still in their lanes.
func (s *settler) settle(ctx context.Context, b *progress.Batch) error {
	for _, r := range b.Refused {
		s.telemetry.Refused(r)
	}
	s.telemetry.Unconfirmed(ctx, b.Stay)
	if len(b.Published) > 0 {
		lost, err := s.settleFresh(ctx, b.Lanes, b.Out(s.keeps()))
		if err != nil {
			return err
		}
		for _, n := range lost { // their rows are out, but only the new owner may say how far the lane is
			b.Left[n] = true
		}
		b.Moved += len(b.Published)
	}
	if len(b.Timed) > 0 {
		if err := s.delay(ctx, b); err != nil {
			return err
		}
	}
	// Lane by lane, so that a lane that was lost, or that an operator has changed, keeps no other lane from being written.
	for n, outcomes := range b.Outcomes {
		*s.due = schedule.DueTime{} // these rows will be due, perhaps earlier than all others
		l := b.Lanes[n]
		if err := s.db.Moves.Hold(ctx, l.Lease, outcomes); err != nil {
			b.Left[n] = true
			if err := s.forget(ctx, l, err); err != nil {
				return err
			}
			continue
		}
		b.Wrote(n)
		for _, o := range outcomes {
			s.report(ctx, b.RowOf(n, o), o)
		}
	}
	return nil
}

// delay takes delayed rows without an ordering key out of their lanes. A row that a transaction is about to cancel or
// move is locked and stays; the next fetch looks at it again.
func (s *settler) delay(ctx context.Context, b *progress.Batch) error {
	*s.due = schedule.DueTime{} // their times may be earlier than that of every row that waits
	leases := progress.LeasesOf(b.Lanes, b.Timed)
	delayed, held, err := s.db.Moves.Delay(ctx, leases, b.Timed)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if !held[l.Lane] {
			_ = s.forget(ctx, b.Lanes[l.Lane], lanedb.ErrFenced)
		}
	}
	gone := map[outboxdb.RowID]bool{}
	for _, id := range delayed {
		gone[id] = true
	}
	for _, id := range b.Timed {
		if !gone[id] {
			b.Left[id.Lane] = true
		}
	}
	b.Moved += len(delayed)
	return nil
}

// unsettled holds rows that the broker has confirmed, but whose settle in the database failed. The worker fetches
// nothing until they are settled: it would find the same rows and publish them again, once for each try. So there is
// never more of it than one batch and one probe.
//
// A settle that failed may have been carried out, because only its answer may have been lost. So the next try accepts
// that rows are gone already.
//
// An entry is dropped if its lanes are lost or the server is another one. Its rows are published once more then.
type unsettled struct {
	lanes map[int16]*progress.Lane
	fresh *progress.Out // rows of the log; nil: the rows are held ones

	held       []int64 // held rows of one key of one lane
	key        string
	generation int // the generation of the mark: a server that forgot numbers may have given them to other rows
}

// settleFresh writes down that the broker confirmed rows of the log. It returns the lanes that do not belong to this
// worker any more. After an error, the rows are kept in unsettled.
func (s *settler) settleFresh(ctx context.Context, lanes map[int16]*progress.Lane, o progress.Out) (lost []int16, err error) {
	gone := map[int16]bool{}
	if err := s.writeDown(ctx, lanes, o, gone); err != nil {
		s.unsettled = append(s.unsettled, unsettled{lanes: lanes, fresh: &o, generation: s.server.generation})
		return nil, err
	}
	for n := range gone {
		lost = append(lost, n)
		s.lost(ctx, lanes[n])
	}
	s.telemetry.Published(ctx, o.Rows())
	return lost, nil
}

// writeDown moves rows out of the log first, and records the positions of the lanes second. It adds the lanes that do
// not belong to this worker any more to gone.
//
// The order matters if the process dies in between. No event is lost in either order, because the broker has confirmed
// all of these rows. But a position beyond a row that is still in the log counts this row as published in its place:
// nobody would move it any more. It would be shown with a wrong time, or stay although nothing is to be kept. In this
// order, a row that was moved is not in the log any more, and rows without a position are published again.
func (s *settler) writeDown(ctx context.Context, lanes map[int16]*progress.Lane, o progress.Out, gone map[int16]bool) error {
	if len(o.Moved) > 0 {
		leases := progress.LeasesOf(lanes, o.Moved)
		held, err := s.db.Moves.Settle(ctx, leases, o.Moved)
		if err != nil {
			return err
		}
		for _, l := range leases {
			gone[l.Lane] = !held[l.Lane]
		}
	}
	var placed []lanedb.Placed
	for _, lease := range progress.LeasesOf(lanes, o.Recorded()) {
		placed = append(placed, lanedb.Placed{Lease: lease, Position: lanes[lease.Lane].Next(o)})
	}
	if len(placed) > 0 {
		held, err := s.db.Log.Record(ctx, placed)
		if err != nil {
			return err
		}
		for _, p := range placed {
			if n := p.Lease.Lane; held[n] {
				lanes[n].MoveTo(p.Position)
			} else {
				gone[n] = true
			}
		}
	}
	maps.DeleteFunc(gone, func(_ int16, lost bool) bool { return !lost })
	return nil
}

// settleHeld settles held rows of one key that the broker has confirmed, and lifts the block if no row of the key is
// left. After an error, the rows are kept in unsettled, and the caller has to put the lane's blocks in doubt.
func (s *settler) settleHeld(ctx context.Context, l *progress.Lane, key string, sent []int64) error {
	lifted, err := s.db.Held.SettleHeld(ctx, l.Lease, l.Blocks.Change(), key, sent)
	if err != nil {
		s.owe(l, key, sent)
		return err
	}
	if lifted {
		l.Blocks.Lift(key)
	}
	s.telemetry.Published(ctx, len(sent))
	return nil
}

// owe keeps held rows that are confirmed and not settled.
func (s *settler) owe(l *progress.Lane, key string, sent []int64) {
	if len(sent) > 0 {
		s.unsettled = append(s.unsettled, unsettled{
			lanes: map[int16]*progress.Lane{l.Lease.Lane: l}, held: sent, key: key, generation: s.server.generation,
		})
	}
}

// settleAgain tries to settle rows whose settle has failed before. It returns how many it has settled. If it returns
// an error, others are left.
func (s *settler) settleAgain(ctx context.Context) (settled int, err error) {
	if len(s.unsettled) == 0 {
		return 0, nil
	}
	ctx, cancel := s.limit.begun(ctx)
	defer cancel()
	return s.settleOwed(ctx)
}

// settleOwed looks at the sequence first. The settle may have failed because the server crashed, and the server that
// answers now may have given the numbers to other rows. A settle by number would then remove rows that were never
// published. If so, or if the lanes belong to another projector, the debt is dropped, and the rows are published
// again.
func (s *settler) settleOwed(ctx context.Context) (settled int, err error) {
	now, _, err := s.server.mark.observe(ctx)
	if err != nil {
		return 0, err
	}
	all := s.unsettled
	s.unsettled = nil
	for i, u := range all {
		n := 0
		switch {
		case !s.owned.Keeps(u.lanes) || u.generation != now: // the rows are published once more, by this worker or another one
		case u.fresh != nil:
			n = u.fresh.Rows()
			_, err = s.settleFresh(ctx, u.lanes, *u.fresh)
		default:
			for _, l := range u.lanes { // there is one lane
				n, err = s.settleHeldAgain(ctx, l, u)
			}
		}
		if err != nil { // the row that failed is owed again by now, and the rows behind it were not tried
			s.unsettled = append(s.unsettled, all[i+1:]...)
			return settled, err
		}
		settled += n
	}
	return settled, nil
}

// settleHeldAgain settles held rows. If the blocks of the lane are unknown, it keeps the rows for the next pass:
// nothing of that lane is published until the blocks are loaded. If the fence refuses, the lane is lost, which
// the next pass will find, or an operator has changed it, and the next pass tries again.
func (s *settler) settleHeldAgain(ctx context.Context, l *progress.Lane, u unsettled) (settled int, err error) {
	if !l.Blocks.AreKnown() {
		s.owe(l, u.key, u.held)
		return 0, nil
	}
	if err := s.settleHeld(ctx, l, u.key, u.held); err != nil {
		return 0, s.forget(ctx, l, err)
	}
	return len(u.held), nil
}

// owes reports whether confirmed rows of the lane still have to be settled.
func (s *settler) owes(l *progress.Lane) bool {
	return slices.ContainsFunc(s.unsettled, func(u unsettled) bool { return u.lanes[l.Lease.Lane] == l })
}

// settleLast settles the rows that a worker still owes when it has stopped. If that fails, the next owner publishes
// them again.
func (s *settler) settleLast(ctx context.Context) {
	if len(s.unsettled) == 0 {
		return
	}
	if _, err := s.settleOwed(ctx); err != nil && !errors.Is(err, lanedb.ErrFenced) {
		s.log.WarnContext(ctx, "oncebox: events were published, but that could not be stored in the outbox; they are published again", "error", err)
	}
}

// giveUp makes held rows dead letters. blocks is the same as in [progress.Batch.Die]. It returns how many rows it has moved.
// Rows of lanes whose blocks are unknown stay, because the lane's counter would not match and the write would be
// refused.
func (s *settler) giveUp(
	ctx context.Context, lanes map[int16]*progress.Lane, rows []*outboxdb.Row, reason string, blocks func(topic string) bool,
) (moved int, err error) {
	outcomes := map[outboxdb.RowID]lanedb.HeldOutcome{}
	var list []lanedb.HeldOutcome
	var ids []outboxdb.RowID
	byID := map[outboxdb.RowID]*outboxdb.Row{}
	for _, r := range rows {
		if !lanes[r.Lane].Blocks.AreKnown() {
			continue
		}
		o := lanedb.HeldOutcome{RowID: outboxdb.RowID{Lane: r.Lane, Seq: r.Sequence}, Verdict: lanedb.Dead, Error: reason, Cause: r.Fingerprint(reason)}
		if !blocks(r.Topic) {
			o.Verdict = lanedb.Abandoned
		}
		outcomes[o.RowID], byID[o.RowID] = o, r
		list, ids = append(list, o), append(ids, o.RowID)
	}
	if len(list) == 0 {
		return 0, nil
	}
	leases := loadedLeasesOf(lanes, ids)
	gone, held, err := s.db.Held.GiveUpHeld(ctx, leases, list)
	if err = s.forgetUnless(ctx, lanes, leases, held, err); err != nil {
		return 0, err
	}
	for _, g := range gone {
		o, r, l := outcomes[g.RowID], byID[g.RowID], lanes[g.Lane]
		switch { // the copy of the blocks follows what the statement did to the table
		case r.Key != "" && o.Verdict == lanedb.Dead:
			l.Blocks.Kill(r.Key)
		case g.Lifted:
			l.Blocks.Lift(r.Key)
		}
		s.report(ctx, r, lanedb.Outcome{Seq: g.Seq, Verdict: o.Verdict, Error: o.Error})
	}
	return len(gone), nil
}

// loadedLeasesOf is progress.LeasesOf with the operators' counters at which the blocks were read. The write does nothing in
// lanes whose counter has changed.
func loadedLeasesOf(lanes map[int16]*progress.Lane, ids []outboxdb.RowID) (leases []lanedb.LoadedLease) {
	for _, l := range progress.LeasesOf(lanes, ids) {
		leases = append(leases, lanedb.LoadedLease{Lease: l, Change: lanes[l.Lane].Blocks.Change()})
	}
	return leases
}

// forgetUnless marks the blocks of all lanes of a write as unknown, except of lanes whose write is confirmed (held).
func (s *settler) forgetUnless(ctx context.Context, lanes map[int16]*progress.Lane, leases []lanedb.LoadedLease, held map[int16]bool, err error) error {
	for _, l := range leases {
		switch {
		case err != nil:
			_ = s.forget(ctx, lanes[l.Lane], err)
		case !held[l.Lane]:
			_ = s.forget(ctx, lanes[l.Lane], lanedb.ErrFenced)
		}
	}
	return err
}

// forget marks the blocks of a lane as unknown after a write that did not succeed. The next pass loads them again
// before it fetches.
//
// [lanedb.ErrFenced] says that the lane belongs to another projector now, or that an operator changed it. Both are
// expected, so forget returns nil. It returns any other error. Such an error leaves open what the database did: the
// statement may have been committed and its answer lost. A worker that goes on with the old blocks would publish rows
// behind a row that is held, or hold rows behind a block that is gone.
func (s *settler) forget(ctx context.Context, l *progress.Lane, err error) error {
	if err == nil {
		return nil
	}
	l.Blocks.Forget()
	if !errors.Is(err, lanedb.ErrFenced) {
		return err
	}
	s.telemetry.Fenced.Add(ctx, 1)
	return nil
}

// lost records that a lane belongs to another projector. This worker does not know the lane's position and blocks any
// more.
func (s *settler) lost(ctx context.Context, l *progress.Lane) {
	l.Located = false
	_ = s.forget(ctx, l, lanedb.ErrFenced)
}

// report shows in the metrics and in the log what became of a row that the broker has not taken. Followers and
// delayed rows are not reported: there may be any number of them, and nothing is wrong with them.
func (s *settler) report(ctx context.Context, r *outboxdb.Row, o lanedb.Outcome) {
	log := func(level slog.Level, message string, more ...any) {
		s.log.Log(ctx, level, message, append(more, "id", r.ID, "type", r.Type, "topic", r.Topic, "tenant", r.TenantID,
			"aggregate_type", r.AggregateType, "aggregate_id", r.AggregateID, "ordering_key", r.Key,
			"lane", r.Lane, "sequence", r.Sequence, "error", o.Error)...)
	}
	switch o.Verdict {
	case lanedb.Refused:
		log(slog.LevelWarn, "oncebox: the broker refused an event; it is tried again, and later events of its ordering key wait", "wait", o.Wait)
	case lanedb.Dead:
		s.telemetry.GaveUp(ctx, r)
		log(slog.LevelError, "oncebox: an event is a dead letter now; later events of its ordering key wait until an operator replays or discards it")
	case lanedb.Abandoned:
		s.telemetry.GaveUp(ctx, r)
		log(slog.LevelError, "oncebox: an event is a dead letter now; later events of its ordering key are published")
	case lanedb.Follower, lanedb.Delayed:
	}
}
