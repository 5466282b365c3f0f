package uow

import (
	"context"
	"database/sql"
	"errors"
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
	// insert: the aggregate is new. Otherwise expected is the version that has to be stored. next is the version that the write stores.
	insert         bool
	expected, next int64
	// events is how many events were recorded when it was saved.
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
			return "", nil, false // bun reads what the default was
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

// byBun writes the aggregate with a statement of bun. stored is false if the row is not there in the expected version.
func (w *write) byBun(ctx context.Context, tx bun.Tx) (stored bool, err error) {
	if w.mapping.version == nil {
		return w.overwrite(ctx, tx)
	}
	// AggregateVersion must go on returning the version from which the events are counted.
	held := w.mapping.held(w.model)
	w.mapping.hold(w.model, w.next)
	defer w.mapping.hold(w.model, held)
	if w.insert {
		return affected(tx.NewInsert().Model(w.aggregate).On("CONFLICT (?) DO NOTHING", bun.Safe(w.mapping.keys)).Exec(ctx))
	}
	return affected(w.updateByBun(tx).Exec(ctx))
}

func (w *write) updateByBun(tx bun.Tx) *bun.UpdateQuery {
	m := w.mapping
	query := tx.NewUpdate().Model(w.aggregate).WherePK().Where("?TableAlias.? = ?", m.version.SQLName, w.expected)
	if m.table.SoftDeleteField != nil {
		query.WhereAllWithDeleted() // or a deleted row could not be restored
	}
	if m.version.SkipUpdate() { // bun would skip it here too
		for _, f := range m.changed {
			query.Set("? = ?", f.SQLName, assigned{f, w.model})
		}
	}
	return query
}

// overwrite inserts or updates an aggregate without a version. An update sets the values of bun's UPDATE: a zero value with a default is inserted
// as the default, and updated to zero.
func (w *write) overwrite(ctx context.Context, tx bun.Tx) (stored bool, err error) {
	m := w.mapping
	query := tx.NewInsert().Model(w.aggregate)
	if len(m.changed) == 0 {
		_, err := affected(query.On("CONFLICT (?) DO NOTHING", bun.Safe(m.keys)).Exec(ctx))
		return true, err // there are no other columns, so the row is equal
	}
	query.On("CONFLICT (?) DO UPDATE", bun.Safe(m.keys))
	for _, f := range m.changed {
		query.Set("? = ?", f.SQLName, overwritten{f, w.model})
	}
	return affected(query.Exec(ctx))
}

// assigned is the value that bun's UPDATE gives to a field, as it is when the query is written: hooks may change it before.
type assigned struct {
	field *schema.Field
	model reflect.Value
}

// AppendQuery implements [schema.QueryAppender].
func (a assigned) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	return a.field.AppendValueOrDefault(gen, b, a.model), nil
}

// overwritten is the same value within an upsert.
type overwritten assigned

// AppendQuery implements [schema.QueryAppender].
func (o overwritten) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	if insertsDefault(o.field, o.model) {
		if value := o.field.AppendValueOrDefault(gen, nil, o.model); string(value) != defaultText {
			return append(b, value...), nil
		}
	}
	return append(append(b, "EXCLUDED."...), o.field.SQLName...), nil
}

// affected reports whether a statement has found its row. If it has RETURNING, bun reports a missing row as [sql.ErrNoRows].
func affected(res sql.Result, err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// confirm sets the version field of the model to the stored version.
func (w *write) confirm() {
	if w.mapping.version != nil {
		w.mapping.hold(w.model, w.next)
	}
}
