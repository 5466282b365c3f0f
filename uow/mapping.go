package uow

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"
)

// mapping is how bun stores the aggregates of one type.
type mapping struct {
	table   *schema.Table
	name    string        // of the table, as a statement has it
	version *schema.Field // nil: there is none
	keys    string        // the columns of the primary key
	// byBun: bun writes the type, because our statements would miss its hooks or generated keys.
	byBun bool
	// changed are the columns that an update sets, the version among them.
	changed []*schema.Field
	texts   texts
}

// mapping returns the mapping of a struct type, which is made once.
func (m *Manager) mapping(typ reflect.Type) (*mapping, error) {
	if known, ok := m.mappings.Load(typ); ok {
		return known.(*mapping), nil //nolint:forcetypeassert // only mappings are stored
	}
	if typ.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is not a struct, so it cannot be a bun model", typ)
	}
	made := newMapping(m.db.QueryGen(), m.db.Table(typ))
	if err := made.validate(typ); err != nil {
		return nil, err
	}
	known, _ := m.mappings.LoadOrStore(typ, made)
	return known.(*mapping), nil //nolint:forcetypeassert // only mappings are stored
}

func newMapping(gen schema.QueryGen, table *schema.Table) *mapping {
	m := &mapping{table: table, name: gen.FormatQuery(string(table.SQLName)), byBun: hooked(table.ZeroIface)}
	for _, f := range table.Fields {
		tagged := f.StructField.Tag.Get("uow") == "version"
		if tagged || m.version == nil && f.Name == "version" && !f.IsPK {
			m.version = f
		}
		m.byBun = m.byBun || f.AutoIncrement || f.Identity
	}
	for _, f := range table.DataFields {
		if !f.SkipUpdate() || f == m.version {
			m.changed = append(m.changed, f)
		}
	}
	keys := make([]string, len(table.PKs))
	for i, f := range table.PKs {
		keys[i] = string(f.SQLName)
	}
	m.keys = strings.Join(keys, ", ")
	return m
}

// validate returns an error for each part of the model that Save cannot store.
func (m *mapping) validate(typ reflect.Type) error {
	var errs []error
	if len(m.table.PKs) == 0 {
		errs = append(errs, fmt.Errorf("the bun model %s has no primary key: tag its field bun:\",pk\"", typ))
	}
	if v := m.version; v != nil && !reflect.Zero(v.StructField.Type).CanInt() {
		errs = append(errs, fmt.Errorf("%s.%s is the version and not an integer with a sign, but a %s", typ, v.GoName, v.StructField.Type))
	}
	for _, f := range m.table.Fields {
		if f.Append == nil {
			errs = append(errs, fmt.Errorf("%s.%s is a %s, which bun cannot store: tag it bun:\"-\"", typ, f.GoName, f.StructField.Type))
		}
	}
	return errors.Join(errs...)
}

func hooked(model any) bool {
	switch model.(type) {
	case bun.BeforeAppendModelHook, bun.BeforeInsertHook, bun.AfterInsertHook, bun.BeforeUpdateHook, bun.AfterUpdateHook:
		return true
	}
	return false
}

// held returns what the model's version field holds.
func (m *mapping) held(model reflect.Value) int64 { return m.version.Value(model).Int() }

func (m *mapping) hold(model reflect.Value, version int64) { m.version.Value(model).SetInt(version) }

// insertsDefault reports whether bun would insert DEFAULT.
func insertsDefault(f *schema.Field, model reflect.Value) bool {
	return f.IsPtr && f.HasNilValue(model) || (f.NullZero || f.SQLDefault != "") && f.HasZeroValue(model)
}
