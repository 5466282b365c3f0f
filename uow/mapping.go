package uow

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"
)

// mapping is how bun stores the aggregates of one type, and the statements that do the same with parameters.
type mapping struct {
	table   *schema.Table
	version *schema.Field // nil: there is none
	keys    string        // the columns of the primary key
	// byBun: bun does more than these statements would.
	byBun bool

	update, insert string
	// updated are the parameters of update, but for the version that is expected.
	updated []*schema.Field
}

// mapping returns the mapping of a struct type, which is made once.
func (m *Manager) mapping(typ reflect.Type) (*mapping, error) {
	if known, ok := m.mappings.Load(typ); ok {
		return known.(*mapping), nil //nolint:forcetypeassert // only mappings are stored
	}
	if typ.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%s is not a struct, so it cannot be a bun model", typ)
	}
	made := newMapping(m.db.Table(typ))
	if len(made.table.PKs) == 0 {
		return nil, fmt.Errorf("the bun model %s has no primary key: tag its field bun:\",pk\"", typ)
	}
	if v := made.version; v != nil && !reflect.Zero(v.StructField.Type).CanInt() {
		return nil, fmt.Errorf("%s.%s is the version and not an integer with a sign, but a %s", typ, v.GoName, v.StructField.Type)
	}
	m.mappings.Store(typ, made)
	return made, nil
}

func newMapping(table *schema.Table) *mapping {
	m := &mapping{table: table, byBun: table.SoftDeleteField != nil || hooked(table.ZeroIface)}
	for _, f := range table.Fields {
		tagged := f.StructField.Tag.Get("uow") == "version"
		if tagged || m.version == nil && f.Name == "version" && !f.IsPK {
			m.version = f
		}
		m.byBun = m.byBun || f.AutoIncrement || f.Identity
	}
	var names, values, sets, keys, where []string
	for i, f := range table.Fields {
		names = append(names, string(f.SQLName))
		values = append(values, fmt.Sprintf("$%d", i+1))
	}
	for _, f := range table.DataFields {
		if !f.SkipUpdate() || f == m.version {
			m.updated = append(m.updated, f)
			sets = append(sets, fmt.Sprintf("%s = $%d", f.SQLName, len(m.updated)))
		}
	}
	for _, f := range table.PKs {
		m.updated = append(m.updated, f)
		keys = append(keys, string(f.SQLName))
		where = append(where, fmt.Sprintf("%s = $%d", f.SQLName, len(m.updated)))
	}
	m.keys = strings.Join(keys, ", ")
	if m.version == nil {
		return m
	}
	const returning = " RETURNING pg_current_xact_id()::text"
	where = append(where, fmt.Sprintf("%s = $%d", m.version.SQLName, len(m.updated)+1))
	m.update = "UPDATE " + string(table.SQLName) + " SET " + strings.Join(sets, ", ") + " WHERE " + strings.Join(where, " AND ") + returning
	m.insert = "INSERT INTO " + string(table.SQLName) + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") +
		") ON CONFLICT (" + m.keys + ") DO NOTHING" + returning
	return m
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

// isDefault tells whether bun would insert DEFAULT.
func isDefault(f *schema.Field, model reflect.Value) bool {
	return f.IsPtr && f.HasNilValue(model) || (f.NullZero || f.SQLDefault != "") && f.HasZeroValue(model)
}

// parameter turns a literal as bun writes it into a parameter: the very text that PostgreSQL would see. It cannot if
// the value is something else, such as an expression.
func parameter(literal []byte) (arg any, ok bool) {
	switch text := string(literal); {
	case text == "NULL":
		return nil, true
	case text == "TRUE" || text == "FALSE" || isNumber(text):
		return text, true
	case len(text) < 2 || text[0] != '\'' || text[len(text)-1] != '\'':
		return nil, false
	default:
		quoted := text[1 : len(text)-1]
		if strings.IndexByte(quoted, '\'') < 0 {
			return quoted, true
		}
		text = strings.ReplaceAll(quoted, "''", "'")
		// Two literals with something between them are no literal.
		return text, strings.Count(quoted, "'") == 2*strings.Count(text, "'")
	}
}

func isNumber(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return digits != "" && strings.Trim(digits, "0123456789.") == ""
}
