package adopt

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/event"
)

// compiler makes SQL of the fields of a mapping, and collects what is wrong with them.
type compiler struct {
	table *table
	box   string
	errs  []error
}

const (
	unset = "NULL::text"
	now   = "now()" // a value of Mapping.Mark

	kindJSON      = "json"
	kindJSONB     = "jsonb"
	kindText      = "text"
	kindVarchar   = "varchar"
	kindBytea     = "bytea"
	kindTime      = "timestamptz"
	kindTimestamp = "timestamp"
	kindHstore    = "hstore"
)

// numbers are the kinds of columns that may have the seconds since 1970.
func numbers() []string { return []string{"int2", "int4", "int8", "numeric", "float4", "float8"} }

func (c *compiler) refuse(field string, err error) string {
	c.errs = append(c.errs, fmt.Errorf("adopt: mapping: %s: %w", field, err))
	return unset
}

func (c *compiler) err() error { return errors.Join(c.errs...) }

// text is the value of a field as text. No value of a row makes it fail.
func (c *compiler) text(field, text string) string {
	t, err := parseTemplate(text)
	if err != nil {
		return c.refuse(field, err)
	}
	if len(t) == 0 {
		return unset
	}
	parts := make([]string, len(t))
	for i, part := range t {
		if part.column == "" {
			parts[i] = literal(part.constant) + "::text"
			continue
		}
		if parts[i], err = c.reference(&part); err != nil {
			return c.refuse(field, err)
		}
	}
	return "(" + strings.Join(parts, " || ") + ")"
}

// reference is the value of a column, or of a part of its JSON, as text.
func (c *compiler) reference(p *part) (string, error) {
	col, err := c.table.column(p.column)
	if err != nil {
		return "", err
	}
	name := "r." + ident(col.name)
	if len(p.path) == 0 {
		if col.kind == kindBytea {
			return "encode(" + name + ", 'escape')", nil
		}
		return name + "::text", nil
	}
	names := make([]string, len(p.path))
	for i, name := range p.path {
		names[i] = literal(name)
	}
	path := "ARRAY[" + strings.Join(names, ", ") + "]::text[]"
	switch col.kind {
	case kindJSONB:
		return "(" + name + " #>> " + path + ")", nil
	case kindJSON, kindText, kindVarchar:
		return c.box + ".oncebox_json(convert_to(" + name + "::text, 'UTF8'), " + path + ")", nil
	case kindBytea:
		return c.box + ".oncebox_json(" + name + ", " + path + ")", nil
	case kindHstore: // the cast is found without a search_path, unlike hstore's operators
		return "(" + name + "::jsonb #>> " + path + ")", nil
	default:
		return "", fmt.Errorf("the column %q is of type %s, which has no parts: only json, jsonb, text and bytea can have JSON in them", col.name, col.kind)
	}
}

// bytes is a field that is one reference, as bytea.
func (c *compiler) bytes(field, text string) string {
	t, err := parseTemplate(text)
	if err != nil {
		return c.refuse(field, err)
	}
	if len(t) == 0 {
		return "NULL::bytea"
	}
	ref := t.single()
	col, err := c.table.column(ref.column)
	if err != nil {
		return c.refuse(field, err)
	}
	if len(ref.path) == 0 {
		switch col.kind {
		case kindBytea:
			return "r." + ident(col.name)
		case kindHstore:
			return "convert_to((r." + ident(col.name) + "::json)::text, 'UTF8')"
		case kindJSON, kindJSONB, kindText, kindVarchar, "bpchar":
		default:
			return c.refuse(field, fmt.Errorf("the column %q is of type %s: give one of type json, jsonb, text or bytea", col.name, col.kind))
		}
	}
	value, err := c.reference(ref)
	if err != nil {
		return c.refuse(field, err)
	}
	return "convert_to(" + value + ", 'UTF8')"
}

// time is occurred_at. Infinite times, which no event can have, are NULL.
func (c *compiler) time(m *Mapping) string {
	const none = "NULL::timestamptz"
	t, err := parseTemplate(m.OccurredAt)
	if err != nil || len(t) == 0 {
		return none
	}
	ref := t.single()
	value, err := c.reference(ref)
	if err != nil {
		c.refuse("occurred_at", err)
		return none
	}
	col, _ := c.table.column(ref.column)
	name, kind := "r."+ident(col.name), col.kind
	if len(ref.path) > 0 {
		kind = kindText
	}
	switch isNumber := slices.Contains(numbers(), kind); {
	case (kind == kindTime || kind == kindTimestamp) && m.OccurredAtUnit != "":
		c.refuse("occurred_at_unit", fmt.Errorf("%s is of type %s, and a unit is for numbers: leave it out", m.OccurredAt, kind))
	case kind == kindTime:
		return fmt.Sprintf("CASE WHEN isfinite(%[1]s) THEN %[1]s END", name)
	case kind == kindTimestamp:
		return fmt.Sprintf("CASE WHEN isfinite(%[1]s) THEN %[1]s AT TIME ZONE 'UTC' END", name)
	case isNumber && m.OccurredAtUnit == "":
		c.refuse("occurred_at", fmt.Errorf("%s is a number: say in occurred_at_unit what it counts since 1970 (s, ms, us or ns)", m.OccurredAt))
	case !isNumber && kind != kindText && kind != kindVarchar:
		c.refuse("occurred_at", fmt.Errorf("%s is of type %s: give a column of type timestamptz or timestamp, a number or a text", m.OccurredAt, kind))
	default:
		return c.box + ".oncebox_time(" + value + ", " + literal(m.OccurredAtUnit) + ")"
	}
	return none
}

// unsent is the condition of rows that were not published yet.
func (c *compiler) unsent(m *Mapping) string {
	conditions := []string{}
	for _, name := range slices.Sorted(maps.Keys(m.Unsent)) {
		col, err := c.table.column(name)
		if err != nil {
			c.refuse("unsent", err)
			continue
		}
		conditions = append(conditions, col.isOneOf(values(m.Unsent[name])))
	}
	if m.Where != "" {
		conditions = append(conditions, "("+m.Where+"\n)") // the line may end with a comment
	}
	if len(conditions) == 0 {
		return "true"
	}
	return strings.Join(conditions, " AND ")
}

// isOneOf compares a column with values. One value is compared with "=", which fits the condition of a partial index.
func (c *column) isOneOf(list []string) string {
	name := "r." + ident(c.name)
	var alternatives []string
	var texts []string
	for _, v := range list {
		if v == null {
			alternatives = append(alternatives, name+" IS NULL")
		} else {
			texts = append(texts, literal(v)+"::"+c.typ)
		}
	}
	switch len(texts) {
	case 0:
	case 1:
		alternatives = append(alternatives, name+" = "+texts[0])
	default:
		alternatives = append(alternatives, name+" IN ("+strings.Join(texts, ", ")+")")
	}
	if len(alternatives) == 1 {
		return alternatives[0]
	}
	return "(" + strings.Join(alternatives, " OR ") + ")"
}

func (c *compiler) order(names []string) string {
	list := make([]string, len(names))
	for i, name := range names {
		if _, err := c.table.column(name); err != nil {
			c.refuse("order", err)
		}
		list[i] = "r." + ident(name)
	}
	return strings.Join(list, ", ")
}

// mark is what an UPDATE sets.
func (c *compiler) mark(m *Mapping) (list []marked) {
	for _, name := range slices.Sorted(maps.Keys(m.Mark)) {
		col, err := c.table.column(name)
		value := values(m.Mark[name])[0]
		switch {
		case err != nil:
		case col.generated:
			err = fmt.Errorf("the column %q is generated, nobody can write to it", name)
		case col.notNull && value == null:
			err = fmt.Errorf("the column %q is NOT NULL: give it another value than null", name)
		}
		if err != nil {
			c.refuse("mark", err)
			continue
		}
		switch {
		case value == null:
			value = "NULL"
		case value != now:
			value = literal(value) + "::" + col.typ
		case col.kind == kindTimestamp:
			value = "clock_timestamp() AT TIME ZONE 'UTC'"
		case col.kind == kindTime:
			value = "clock_timestamp()"
		default:
			c.refuse("mark", fmt.Errorf("the column %q is of type %s, and now() is for timestamptz and timestamp", name, col.kind))
		}
		list = append(list, marked{name, value})
	}
	return list
}

// marked is a column that an UPDATE sets, and its value in SQL.
type marked struct{ column, value string }

func (c *compiler) contentType(m *Mapping) string {
	if m.ContentType != "" {
		return m.ContentType
	}
	if t, err := parseTemplate(m.Payload); err == nil && t.single() != nil {
		if col, err := c.table.column(t.single().column); err == nil && col.kind == kindBytea && len(t.single().path) == 0 || m.Base64 {
			return "application/octet-stream"
		}
	}
	return event.ContentTypeJSON
}
