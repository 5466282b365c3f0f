package uow

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/oncebox/oncebox/event"
)

// write is one aggregate that is to be stored.
type write struct {
	aggregate event.Aggregate
	mapping   *mapping
	model     reflect.Value // the struct
	// insert says that it is new; expected is the version that has to be there otherwise, next the one to be stored.
	insert         bool
	expected, next int64
	// events is how many were recorded.
	events int
}

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
	_, stale := r.stale[a]
	r.mu.Unlock()
	name := a.AggregateType() + " " + a.AggregateID()
	if stale {
		return nil, fmt.Errorf("%w: %s", ErrStale, name)
	}
	w := &write{
		aggregate: a, mapping: m, model: reflect.ValueOf(a).Elem(), expected: a.AggregateVersion(), events: len(a.RecordedEvents()),
	}
	w.insert, w.next = w.expected == 0, w.expected+int64(w.events)
	switch {
	case m.version == nil && w.expected != 0:
		return nil, fmt.Errorf(`%s has version %d, but its model has no column "version" and no field with the tag uow:"version"`, name, w.expected)
	case m.version == nil:
		return w, nil
	case w.next == 0:
		return nil, fmt.Errorf("%s is new and has recorded nothing: its version would stay 0, as if it had never been stored", name)
	}
	if held := m.held(w.model); held < w.expected || held > w.next {
		return nil, fmt.Errorf("%s: AggregateVersion is %d, but the field %s holds %d", name, w.expected, m.version.GoName, held)
	}
	if before != nil {
		w.insert, w.expected = false, before.next
	}
	return w, nil
}

// statement returns the statement and its parameters, if the values can be parameters.
func (w *write) statement(gen schema.QueryGen) (text string, args []any, ok bool) {
	m := w.mapping
	if m.byBun || m.version == nil {
		return "", nil, false
	}
	text, fields := m.update, m.updated
	if w.insert {
		text, fields = m.insert, m.table.Fields
	}
	args = make([]any, 0, len(fields)+2)
	var buf [256]byte
	for _, f := range fields {
		if f == m.version {
			args = append(args, w.next)
			continue
		}
		if w.insert && isDefault(f, w.model) {
			return "", nil, false
		}
		arg, ok := parameter(f.AppendValue(gen, buf[:0], w.model))
		if !ok {
			return "", nil, false
		}
		args = append(args, arg)
	}
	if !w.insert {
		args = append(args, w.expected)
	}
	return text, args, true
}

// byBun has bun make the statement.
func (w *write) byBun(ctx context.Context, tx bun.Tx) (sql.Result, error) {
	m := w.mapping
	if m.version == nil {
		query := tx.NewInsert().Model(w.aggregate).On("CONFLICT (?) DO UPDATE", bun.Safe(m.keys))
		for _, f := range m.updated[:len(m.updated)-len(m.table.PKs)] {
			query.Set("? = EXCLUDED.?", f.SQLName, f.SQLName)
		}
		return query.Exec(ctx)
	}
	// AggregateVersion must go on telling the version that the events count from.
	held := m.held(w.model)
	m.hold(w.model, w.next)
	defer m.hold(w.model, held)
	if w.insert {
		return tx.NewInsert().Model(w.aggregate).On("CONFLICT (?) DO NOTHING", bun.Safe(m.keys)).Exec(ctx)
	}
	return tx.NewUpdate().Model(w.aggregate).WherePK().Where("?TableAlias.? = ?", m.version.SQLName, w.expected).Exec(ctx)
}

// confirm makes the model hold what is stored.
func (w *write) confirm() {
	if w.mapping.version != nil {
		w.mapping.hold(w.model, w.next)
	}
}
