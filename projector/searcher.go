package projector

import (
	"context"
	"hash/maphash"
	"slices"
	"time"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/projector/internal/leases"
	"github.com/oncebox/oncebox/projector/internal/progress"
	"github.com/oncebox/oncebox/projector/internal/schedule"
)

// searcher finds rows that may pass rows that stay: rows of topics and tenants that are neither
// in trouble nor paused, and rows of tenants that wait behind the backlog of another tenant.
//
// A row may pass only rows of other ordering keys. The search therefore remembers the keys of the rows that stay, and
// holds back every later row of such a key. Two keys with one hash wait for each other, which costs time and no order.
//
// Several searches go on in each lane, each from where it has got to: one past rows of topics in trouble and paused
// tenants (progress.Lane.Topics), and one for each tenant with a long backlog and for all other tenants together, past
// the backlogs of all others (progress.Lane.Past). Their positions are in memory only. After a crash of the server, or when
// a topic or a tenant comes back, they begin again at the head of the lane.
type searcher struct {
	db      lanedb.Lanes
	server  *server
	owned   *leases.Owned
	send    *sender
	topics  *schedule.Topics
	tenants *schedule.Tenants
	silence *schedule.Silence
	rules   *progress.Rules
	limit   limit
	size    int          // Config.BatchSize
	seed    maphash.Seed // of the hashes of ordering keys

	stay       lanedb.Filter // the topics and tenants that are left alone, as of the last look
	backlogged schedule.Backlog
	aloneUntil time.Time // until then it is taken for granted that only tenants with a backlog have rows
	farLooks   int       // the number of looks far beyond the mark in this pass
}

// begin is called at the beginning of a pass.
func (s *searcher) begin() { s.farLooks = 0 }

// topicsOf returns the search of a lane past rows of topics in trouble and paused tenants.
func topicsOf(l *progress.Lane) *schedule.Search { return &l.Topics }

// rows returns the number of rows to send at once from a number of lanes.
func (s *searcher) rows(lanes int) int { return s.silence.Batch(s.size, lanes) }

// picked is the result of a pick.
type picked struct {
	moved  int            // the number of rows that left their lanes
	rows   []outboxdb.Row // the rows that were fetched
	most   int            // how many rows could have been fetched
	more   bool           // the search can go on
	beyond map[int16]bool // lanes with rows behind the last row that was looked at or taken; nil: unknown
}

// pick publishes a batch of rows that the filter lets through, wherever in the lanes they are. which returns the
// search of a lane that goes on here.
//
// The steps are a scan, which reads the keys and topics of rows but no payloads; a choice among them; and a fetch,
// publication and settle of the chosen rows. The position of a search moves up to the last row that was looked at,
// but not beyond the mark or the end of the shortcut, and not if a row of the lane stayed for another try: this row has to
// be found again.
func (s *searcher) pick(ctx context.Context, group []*progress.Lane, keep lanedb.Filter, which func(*progress.Lane) *schedule.Search) (p picked, err error) {
	ctx, cancel := s.limit.begun(ctx)
	defer cancel()
	if same, err := s.server.isSame(ctx); !same {
		return p, err
	}
	p.most = s.size
	low, short := s.server.mark.now() // before the scan begins: a later mark could be beyond a row that the scan did not see
	limit := short.Limit(low)
	byLane, begins := map[int16]*progress.Lane{}, map[int16]int64{}
	cursors := make([]lanedb.Cursor, len(group))
	for i, l := range group {
		cursors[i] = short.Cursor(l, which(l))
		byLane[l.Lease.Lane], begins[l.Lease.Lane] = l, cursors[i].After
	}
	infos, err := s.db.Log.Scan(ctx, cursors, keep)
	if err != nil {
		return p, err
	}
	if p.more, err = s.isVoid(ctx, infos, cursors, short); p.more || err != nil {
		return p, err
	}
	ids, seen := schedule.Choose(infos, schedule.Share(infos, s.rows), s.seed, func(n int16) *schedule.Search { return which(byLane[n]) })
	b := progress.NewBatch(byLane, s.rules)
	b.Low = low
	for n, e := range seen {
		// No row has been left in front of these rows, so they count as the heads of the lane.
		b.InTurn[n] = e.Whole && begins[n] <= byLane[n].At.Sent
	}
	if len(ids) > 0 {
		if p.rows, err = s.send.fetch.fetchPicked(ctx, byLane, ids); err != nil {
			return p, err
		}
		b, err = s.send.deliver(ctx, b, p.rows)
		if p.moved = b.Moved; err != nil {
			return p, err
		}
	}
	p.beyond = map[int16]bool{}
	for n, e := range seen {
		p.beyond[n] = e.More || b.Cut[n]
		p.more = p.more || b.Cut[n] && b.Moved > 0
		search := which(byLane[n])
		stuck := search.Reach(e.To, limit)
		if reached := min(e.To, limit.To); !b.Left[n] && reached > begins[n] {
			search.To = max(search.To, min(reached, low))
			short.Advance(&search.Short, reached)
			p.more = p.more || e.More && !stuck
		}
	}
	return p, nil
}

// isVoid reports whether a scan has found nothing because its shortcut has ended. Then the search begins again.
func (s *searcher) isVoid(ctx context.Context, infos []lanedb.RowInfo, cursors []lanedb.Cursor, short progress.Shortcut) (bool, error) {
	if len(infos) > 0 || !progress.AreOnShortcut(cursors) {
		return false, nil
	}
	return s.server.mark.lookAgain(ctx, short)
}

const (
	// farInterval is the shortest time between two looks of one search far beyond the mark in one lane. A look reads up to
	// [lanedb.FarWindow] rows.
	farInterval = 2 * time.Second
	// maxFarLooks is the largest number of such looks in one pass, each in one lane, so that the other work of the pass does
	// not wait for long.
	maxFarLooks = 4
)

// far publishes rows far behind the rows that stay, in lanes whose search is stuck: it has come to the mark, or to the end
// of the shortcut. That lasts if a transaction that writes for long holds the mark where it is, and there is no shortcut, or
// its end stands still as well. Then the rows behind the place of the search would wait for that transaction.
//
// It remembers nothing and begins at the same place each time. That is the price for going past rows beyond the mark,
// where rows may still appear. It is safe for the order, because the whole stretch is read in one snapshot: a
// snapshot that shows a row shows all earlier rows of its key.
func (s *searcher) far(ctx context.Context, group []*progress.Lane, keep lanedb.Filter, which func(*progress.Lane) *schedule.Search) (p picked, err error) {
	if ctx.Err() != nil {
		return p, nil // stopped, and that is not an error
	}
	ctx, cancel := s.limit.begun(ctx)
	defer cancel()
	if same, err := s.server.isSame(ctx); !same {
		return p, err
	}
	low, short := s.server.mark.now()
	limit := short.Limit(low)
	byLane := map[int16]*progress.Lane{}
	var cursors []lanedb.Cursor
	oldest := slices.SortedStableFunc(slices.Values(group), func(a, b *progress.Lane) int { return which(a).FarSeen.Compare(which(b).FarSeen) })
	for _, l := range oldest {
		if search := which(l); l.Full && search.Stuck == limit && s.farLooks < maxFarLooks && time.Since(search.FarSeen) >= farInterval {
			search.FarSeen = time.Now()
			s.farLooks++
			byLane[l.Lease.Lane] = l
			cursors = append(cursors, short.Cursor(l, search))
		}
	}
	if len(cursors) == 0 {
		return p, nil
	}
	infos, err := s.db.Log.ScanFar(ctx, cursors, keep)
	if err != nil {
		return p, err
	}
	void, err := s.isVoid(ctx, infos, cursors, short)
	if void {
		for _, l := range byLane {
			which(l).FarSeen = time.Time{} // the look was in vain
		}
	}
	if void || err != nil {
		return p, err
	}
	ids := schedule.ChooseFar(infos, schedule.Share(infos, s.rows), s.seed, func(n int16) *schedule.Search { return which(byLane[n]) })
	if len(ids) == 0 {
		return p, nil
	}
	if p.rows, err = s.send.fetch.fetchPicked(ctx, byLane, ids); err != nil {
		return p, err
	}
	b, err := s.send.deliver(ctx, progress.NewBatch(byLane, s.rules), p.rows)
	p.moved, p.most = b.Moved, min(s.size, schedule.LanesThatGive(infos)*lanedb.FarRows)
	return p, err
}

// staying returns the topics and tenants whose rows stay now: topics in trouble, and paused tenants.
//
// If one of them comes back, all searches begin again at the heads, because rows that were skipped come first now.
// They also begin again if another tenant is paused: the first rows that a search knows of a topic in trouble may
// belong to that tenant, and must not be sent as a probe.
func (s *searcher) staying() lanedb.Filter {
	now := lanedb.Filter{Topics: append(s.topics.List(), s.silence.LeftOut()...), Tenants: s.tenants.List()}
	back := func(topic string) bool { return !slices.Contains(now.Topics, topic) }
	if slices.ContainsFunc(s.stay.Topics, back) || !slices.Equal(s.stay.Tenants, now.Tenants) {
		for _, l := range s.owned.All() {
			l.SearchAnew()
		}
	}
	s.stay = now
	return now
}

// fair gives their turns to the tenants that wait behind the heads. Each turn takes no longer than the turn of the
// heads took, which is budget, apart from its first part and from looks far ahead. Only full lanes are searched: in the
// others, the fetch from the heads has seen all rows.
func (s *searcher) fair(ctx context.Context, group []*progress.Lane, budget time.Duration) (moved int, err error) {
	var full []*progress.Lane
	for _, l := range group {
		if l.Full {
			full = append(full, l)
		}
	}
	if len(full) == 0 {
		return 0, nil
	}
	alone, err := s.alone(ctx, full)
	if err != nil {
		return 0, err
	}
	// First all tenants without a backlog, together: each of them has few rows, so they need little time.
	if !alone {
		if moved, err = s.give(ctx, full, schedule.OtherTenants, budget); err != nil {
			return moved, err
		}
	}
	for _, tenant := range s.backlogged.Behind() {
		n, err := s.give(ctx, full, tenant, budget)
		if moved += n; n > 0 || err != nil { // one backlogged tenant has a turn in each pass, the next one in the next
			s.backlogged.Last = slices.Index(s.backlogged.Tenants, tenant)
			return moved, err
		}
	}
	return moved, nil
}

// give publishes rows of one tenant (or of all tenants without a backlog) and skips every other backlogged tenant.
//
// The search may find tenants that have a backlog too. They join the backlogged ones and are skipped from then on.
// Their own search begins where the search of the other tenants is now, because their rows up to there have left with it.
func (s *searcher) give(ctx context.Context, full []*progress.Lane, tenant string, budget time.Duration) (moved int, err error) {
	stay := s.staying() // read again: topics may have got into trouble since the last turn
	if slices.Contains(stay.Tenants, tenant) {
		return 0, nil
	}
	low, short := s.server.mark.now()
	limit := short.Limit(low)
	search := func(l *progress.Lane) *schedule.Search { return l.Past(tenant) }
	keep := func() lanedb.Filter {
		return lanedb.Filter{Topics: stay.Topics, Tenants: slices.Concat(stay.Tenants, s.backlogged.But(tenant))}
	}
	lanes := slices.DeleteFunc(slices.Clone(full), func(l *progress.Lane) bool { return search(l).Stuck == limit })
	for end, more := time.Now().Add(budget), true; more && time.Now().Before(end) && ctx.Err() == nil; {
		if lanes = s.owned.StillReady(lanes); len(lanes) == 0 {
			break
		}
		p, err := s.pick(ctx, lanes, keep(), search)
		moved, more = moved+p.moved, p.more
		if err != nil {
			return moved, err
		}
		s.join(p)
	}
	p, err := s.far(ctx, s.owned.StillReady(full), keep(), search)
	s.join(p)
	return moved + p.moved, err
}

// join makes the tenants backlogged that have a large share of a full batch.
func (s *searcher) join(p picked) {
	for _, joined := range s.backlogged.Join(schedule.Largest(p.rows, p.most, schedule.BacklogShare)) {
		for _, l := range s.owned.All() {
			*l.Past(joined) = l.Past(schedule.OtherTenants).Clone() // it was one of them until now
		}
	}
}

// aloneFor is the time for which the answer of alone is kept. The first event of a new tenant may wait this much
// longer.
const aloneFor = 50 * time.Millisecond

// alone reports whether only backlogged and paused tenants have rows. Then the lanes need no search up to the mark
// low, and the search of the other tenants moves there at once. That misses no row: all rows up to the mark were visible
// when the mark was taken, and a tenant is entered in its table before its first row becomes visible. So a tenant
// with a row up to the mark would be in the table that is asked here.
func (s *searcher) alone(ctx context.Context, full []*progress.Lane) (bool, error) {
	if time.Now().Before(s.aloneUntil) {
		return true, nil
	}
	low, _ := s.server.mark.now() // before the question is asked
	ctx, cancel := s.limit.bounded(ctx)
	defer cancel()
	others, err := s.db.Leases.OtherTenants(ctx, slices.Concat(s.backlogged.Tenants, s.stay.Tenants))
	if others || err != nil {
		return false, err
	}
	s.aloneUntil = time.Now().Add(aloneFor)
	for _, l := range full {
		others := l.Past(schedule.OtherTenants)
		others.To = max(others.To, low)
	}
	return true, nil
}

// forgetBacklogged forgets the backlogged tenants when no lane is full any more: the fetch from the heads reaches all
// rows then. Lanes whose leases are renewed too late count as well. They keep the positions of their searches, which are true
// only for these tenants.
func (s *searcher) forgetBacklogged() {
	lanes := s.owned.All()
	if len(s.backlogged.Tenants) == 0 || slices.ContainsFunc(lanes, func(l *progress.Lane) bool { return l.Full }) {
		return
	}
	s.backlogged, s.aloneUntil = schedule.Backlog{}, time.Time{}
	for _, l := range lanes {
		l.Tenants = nil
	}
}
