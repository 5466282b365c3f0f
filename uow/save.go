package uow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun/schema"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// Save stores aggregates that are bun models, and tracks them as [Unit.Track] does, with the tenant, the metadata and the trace
// of ctx.
//
// The version of an aggregate is its column "version", or the field with the tag `uow:"version"`, and AggregateVersion has to return the stored
// version. Save adds the number of recorded events to it, provided that the stored version is still the same: if somebody else was faster, the
// error is a [*ConflictError]. Version 0 means a new aggregate. Save inserts it, so it needs an event. Record first and save
// last: events that are recorded after the latest Save fail the unit. The version field of the model is set after COMMIT, so that the next unit can
// save the same instance.
//
// A change without an event keeps the version. Save refuses it if another unit has saved an event meanwhile. If another unit makes a change without an
// event at the same time, Save does not notice that, and the later change stays. So record an event for each change that must not be lost, or load the
// aggregate with FOR UPDATE in all units that change it: then the units take turns.
//
// A hot aggregate, which many units change at the same time, is better loaded with FOR UPDATE inside the unit: then the units take turns, and there
// is no conflict. See the example of a hot aggregate. Load several hot aggregates in the same order in all units, for example with ORDER BY id FOR
// UPDATE: two units that lock the same rows in different orders are a deadlock, which PostgreSQL finds after a second (deadlock_timeout) and ends
// by an error in one of them. That unit is run again.
//
// For the same reason a call updates its rows in the order of type and id, whatever the order of its arguments. Inserts keep their place among the
// arguments: an update is not moved across an insert. The events keep the order of the arguments. Where one update has to precede another one,
// because a unique value moves from one row to the other, call Save twice.
//
// An aggregate without a version column is inserted or overwritten, whatever was stored. If it has no columns besides its key, it is inserted
// unless it exists. The model must have the primary key of the table.
//
// On connections of config.OpenDB the statement is prepared. If it is the first of the unit, it shares the round trip of BEGIN, and it saves COMMIT
// a round trip. Hooks on bun's queries do not see it. It stores the same values as bun's own INSERT and UPDATE: DEFAULT for a nil pointer, and for a zero
// value that is tagged nullzero. Models that have hooks or values that are expressions in SQL are written by bun's own query. A soft delete hides
// no row from Save: an aggregate that was loaded with WhereAllWithDeleted and whose field is cleared is restored.
func (u *Unit) Save(ctx context.Context, aggregates ...event.Aggregate) error {
	writes, entries := make([]*write, 0, len(aggregates)), make([]entry, 0, len(aggregates))
	for _, a := range aggregates {
		w, err := u.root.newWrite(a)
		if err != nil {
			return fmt.Errorf("uow: Save: %w", err)
		}
		if slices.ContainsFunc(writes, func(w *write) bool { return w.aggregate == a }) {
			continue // the same aggregate twice would be in conflict with itself
		}
		writes, entries = append(writes, w), append(entries, entry{ctx: ctx, aggregate: a})
	}
	// Track all or none, and before they are stored, so that they become stale if that fails.
	if err := u.give(entries...); err != nil {
		return fmt.Errorf("uow: Save: %w", err)
	}
	inLockOrder(writes)
	// The server reports no error for a row that is missing, so the transaction goes on and the stored version
	// can still be read.
	missed, err := u.root.save(ctx, writes)
	if missed != nil {
		err = missed.conflict(ctx, u.root.tx.bun, u.root.manager.db.QueryGen())
	}
	u.root.mu.Lock()
	defer u.root.mu.Unlock()
	for _, w := range writes {
		if err != nil {
			u.root.stale.mark(w.aggregate) // or its events would be published by a unit that ignores the error
			continue
		}
		if u.root.saved == nil {
			u.root.saved = map[event.Aggregate]*write{}
		}
		u.root.saved[w.aggregate] = w
	}
	if err != nil {
		return fmt.Errorf("uow: Save: %w", err)
	}
	return nil
}

// inLockOrder sorts the updates between two inserts. An insert stays where it is, because a row that refers to it may follow.
func inLockOrder(writes []*write) {
	for len(writes) > 0 {
		n := slices.IndexFunc(writes, func(w *write) bool { return w.insert })
		if n < 0 {
			n = len(writes)
		}
		slices.SortStableFunc(writes[:n], func(a, b *write) int {
			return cmp.Or(cmp.Compare(a.aggregate.AggregateType(), b.aggregate.AggregateType()),
				cmp.Compare(a.aggregate.AggregateID(), b.aggregate.AggregateID()))
		})
		writes = writes[min(n+1, len(writes)):]
	}
}

// save sends all statements at once if it can. missed is an aggregate whose row was not there in the expected version.
func (r *root) save(ctx context.Context, writes []*write) (missed *write, err error) {
	s := &struct { // together, because each would be an object of its own
		batch  pgsql.Batch
		xid    string
		missed *write
	}{}
	for _, w := range writes {
		text, args, ok := w.statement(r.manager.db.QueryGen())
		if !ok {
			return r.saveByBun(ctx, writes)
		}
		s.batch.Query(func(row *pgsql.Result) error {
			err := row.One(&s.xid)
			if errors.Is(err, pgx.ErrNoRows) {
				s.missed = w
			}
			return err
		}, text, args...)
	}
	ok, err := pgsql.SendTogether(ctx, r.tx.conn, &s.batch)
	if !ok {
		return r.saveByBun(ctx, writes)
	}
	if err == nil && s.xid != "" {
		r.tx.identified(s.xid)
	}
	return s.missed, err
}

// saveByBun writes one aggregate after the other with bun's own queries, for models that a prepared
// statement cannot serve.
func (r *root) saveByBun(ctx context.Context, writes []*write) (missed *write, err error) {
	if err := r.tx.ended(); err != nil {
		return nil, err
	}
	for _, w := range writes {
		stored, err := w.byBun(ctx, r.tx.bun)
		if err != nil {
			return nil, err
		}
		if !stored {
			return w, nil
		}
	}
	return nil, nil
}

// write is one aggregate that is to be stored.
type write struct {
	aggregate event.Aggregate
	mapping   *mapping
	model     reflect.Value // the struct
	// insert: the aggregate is new. Otherwise expected is the version that has to be stored. next is the version that the write stores.
	insert         bool
	expected, next int64
	// events is how many events were recorded when it was saved.
	events int
}

// newWrite checks the aggregate and finds out whether it is inserted or updated. It sends nothing.
func (r *root) newWrite(a event.Aggregate) (*write, error) {
	if !identifiable(a) || reflect.TypeOf(a).Kind() != reflect.Pointer {
		return nil, fmt.Errorf("%#v is not a pointer to an aggregate", a)
	}
	m, err := r.manager.mapping(reflect.TypeOf(a).Elem())
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	before := r.saved[a]
	stale := r.stale.has(a)
	r.mu.Unlock()
	if stale {
		return nil, fmt.Errorf("%w: %s", ErrStale, nameOf(a))
	}
	w := &write{
		aggregate: a, mapping: m, model: reflect.ValueOf(a).Elem(), expected: a.AggregateVersion(), events: len(a.RecordedEvents()),
	}
	w.insert, w.next = w.expected == 0, w.expected+int64(w.events)
	switch {
	case m.version == nil && w.expected != 0:
		return nil, fmt.Errorf(`%s has version %d, but its model has no column "version" and no field with the tag uow:"version"`, nameOf(a), w.expected)
	case m.version == nil:
		return w, nil
	case w.next == 0:
		return nil, fmt.Errorf("%s is new and has recorded nothing: its version would stay 0, as if it had never been stored", nameOf(a))
	}
	if held := m.held(w.model); held < w.expected || held > w.next {
		return nil, fmt.Errorf("%s: AggregateVersion is %d, but the field %s holds %d", nameOf(a), w.expected, m.version.GoName, held)
	}
	// It was saved before in this unit, so its row has the version that the earlier write stored.
	if before != nil {
		w.insert, w.expected = false, before.next
	}
	return w, nil
}

func nameOf(a event.Aggregate) string { return a.AggregateType() + " " + a.AggregateID() }

// statement returns the statement and its parameters, if the values can be parameters.
func (w *write) statement(gen schema.QueryGen) (text string, args []any, ok bool) {
	m := w.mapping
	if m.byBun || m.version == nil {
		return "", nil, false
	}
	fields := m.changed
	if w.insert {
		fields = m.table.Fields
	}
	args, kinds := make([]any, 0, len(m.table.Fields)+1), make([]kind, len(fields))
	var buf [256]byte
	for i, f := range fields {
		if f == m.version {
			args, kinds[i] = append(args, w.next), isText
			continue
		}
		if w.insert && insertsDefault(f, w.model) {
			return "", nil, false // bun reads the default back
		}
		arg, k, ok := parameter(f, f.AppendValueOrDefault(gen, buf[:0], w.model))
		if !ok {
			return "", nil, false
		}
		if kinds[i] = k; k != isDefault {
			args = append(args, arg)
		}
	}
	if !w.insert {
		for _, f := range m.table.PKs {
			arg, k, ok := parameter(f, f.AppendValue(gen, buf[:0], w.model))
			if !ok || k == isDefault {
				return "", nil, false
			}
			args = append(args, arg)
		}
		args = append(args, w.expected)
	}
	text, ok = m.text(w.insert, kinds)
	return text, args, ok
}

// confirm sets the version field of the model to the stored version.
func (w *write) confirm() {
	if w.mapping.version != nil {
		w.mapping.hold(w.model, w.next)
	}
}
