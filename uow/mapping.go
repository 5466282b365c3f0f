package uow

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

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

// newMapping looks at the fields once for each type. A tag wins over the name "version".
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
		errs = append(errs, fmt.Errorf("%s.%s is the version and must be a signed integer, but is a %s", typ, v.GoName, v.StructField.Type))
	}
	for _, f := range m.table.Fields {
		if f.Append == nil {
			errs = append(errs, fmt.Errorf("%s.%s is a %s, which bun cannot store: tag it bun:\"-\"", typ, f.GoName, f.StructField.Type))
		}
	}
	return errors.Join(errs...)
}

// hooked reports whether the model has hooks that only bun's own queries call.
func hooked(model any) bool {
	switch model.(type) {
	case bun.BeforeAppendModelHook, bun.BeforeInsertHook, bun.AfterInsertHook, bun.BeforeUpdateHook, bun.AfterUpdateHook:
		return true
	}
	return false
}

// held returns the value of the model's version field.
func (m *mapping) held(model reflect.Value) int64 { return m.version.Value(model).Int() }

func (m *mapping) hold(model reflect.Value, version int64) { m.version.Value(model).SetInt(version) }

// insertsDefault reports whether bun would insert DEFAULT.
func insertsDefault(f *schema.Field, model reflect.Value) bool {
	return f.IsPtr && f.HasNilValue(model) || (f.NullZero || f.SQLDefault != "") && f.HasZeroValue(model)
}

// maxTexts limits the statements of one type, since each is prepared on each connection. A model has a statement for each combination of empty
// optional fields; further combinations are written by bun.
const maxTexts = 32

// texts are the statements of one type, each made once, by the kinds of the values that it sets.
type texts struct {
	mu    sync.Mutex
	known map[string]string
}

// text returns the statement that sets values of these kinds: one for each of the table's columns in an insert, one for each changed column in
// an update, which has fewer. ok is false if there are too many statements already.
func (m *mapping) text(insert bool, kinds []kind) (text string, ok bool) {
	t := &m.texts
	t.mu.Lock()
	defer t.mu.Unlock()
	if text, ok = t.known[string(kinds)]; ok {
		return text, true
	}
	if len(t.known) == maxTexts {
		return "", false
	}
	if t.known == nil {
		t.known = map[string]string{}
	}
	if text = m.updateText(kinds); insert {
		text = m.insertText(kinds)
	}
	t.known[string(kinds)] = text
	return text, true
}

const returningXID = " RETURNING pg_current_xact_id()::text"

// insertText makes an INSERT that returns the id of the transaction, so that COMMIT needs no statement before it.
func (m *mapping) insertText(kinds []kind) string {
	names := make([]string, len(kinds))
	for i, f := range m.table.Fields {
		names[i] = string(f.SQLName)
	}
	values, _ := placeholders(kinds)
	return "INSERT INTO " + m.name + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") +
		") ON CONFLICT (" + m.keys + ") DO NOTHING" + returningXID
}

// updateText makes an UPDATE that finds its row only in the expected version: that is the optimistic lock.
func (m *mapping) updateText(kinds []kind) string {
	sets, n := placeholders(kinds)
	for i, f := range m.changed {
		sets[i] = string(f.SQLName) + " = " + sets[i]
	}
	where := make([]string, 0, len(m.table.PKs)+1)
	for _, f := range append(slices.Clip(m.table.PKs), m.version) {
		n++
		where = append(where, string(f.SQLName)+" = "+isText.placeholder(n))
	}
	return "UPDATE " + m.name + " SET " + strings.Join(sets, ", ") + " WHERE " + strings.Join(where, " AND ") + returningXID
}

// placeholders returns the placeholders for values of these kinds, and the number of parameters among them.
func placeholders(kinds []kind) (all []string, n int) {
	for _, k := range kinds {
		if k != isDefault {
			n++
		}
		all = append(all, k.placeholder(n))
	}
	return all, n
}

// kind is the type that PostgreSQL sees in a literal of bun. It decides how the value is converted for its column: 1.5 can be stored as an integer,
// and '1.5' cannot.
type kind byte

const (
	isText    kind = 't' // or NULL: PostgreSQL reads it as the column's type
	isBoolean kind = 'b'
	isInteger kind = 'i'
	isNumeric kind = 'n'
	isDefault kind = 'd'
)

// defaultText stands for the column's default, in bun's literals and in SQL.
const defaultText = "DEFAULT"

// placeholder returns the placeholder of a value that is the n-th parameter of its statement.
func (k kind) placeholder(n int) string {
	switch k {
	case isDefault:
		return defaultText
	case isBoolean:
		return fmt.Sprintf("$%d::boolean", n)
	case isInteger:
		return fmt.Sprintf("$%d::bigint", n)
	case isNumeric:
		return fmt.Sprintf("$%d::numeric", n)
	default:
		return fmt.Sprintf("$%d", n)
	}
}

// parameter turns a literal of bun into a parameter. ok is false if the text is not a literal, but an expression for example.
func parameter(f *schema.Field, literal []byte) (arg any, k kind, ok bool) {
	switch text := string(literal); {
	case text == "NULL":
		return nil, isText, true
	case text == defaultText:
		return nil, isDefault, true
	case text == "TRUE" || text == "FALSE":
		return text, isBoolean, true
	case isNumber(text):
		return text, numberKind(f, text), true
	case len(text) < 2 || text[0] != '\'' || text[len(text)-1] != '\'':
		return nil, isText, false
	default:
		quoted := text[1 : len(text)-1]
		if strings.IndexByte(quoted, '\'') < 0 {
			return quoted, isText, true
		}
		text = strings.ReplaceAll(quoted, "''", "'")
		// Two literals with something between them are an expression.
		return text, isText, strings.Count(quoted, "'") == 2*strings.Count(text, "'")
	}
}

// isNumber reports whether a literal consists of digits, with a sign and points. bun writes no exponents.
func isNumber(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return digits != "" && strings.Trim(digits, "0123456789.") == ""
}

// numberKind returns the same kind for all values of a field if it can, because each kind needs a statement of its own.
func numberKind(f *schema.Field, text string) kind {
	const certain = len("999999999999999999") // digits of a bigint
	switch goes := f.IndirectType.Kind(); {
	case goes == reflect.Float32, goes == reflect.Float64, strings.Contains(text, "."), len(strings.TrimPrefix(text, "-")) > certain:
		return isNumeric
	default:
		return isInteger
	}
}
