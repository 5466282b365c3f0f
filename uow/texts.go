package uow

import (
	"slices"
	"strings"
	"sync"
)

// maxTexts is how many statements of one type there are, since each is prepared on each connection. A model has one for each combination of
// its optional fields that are empty; what is beyond that is written by bun.
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

func (m *mapping) insertText(kinds []kind) string {
	names := make([]string, len(kinds))
	for i, f := range m.table.Fields {
		names[i] = string(f.SQLName)
	}
	values, _ := placeholders(kinds)
	return "INSERT INTO " + m.name + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") +
		") ON CONFLICT (" + m.keys + ") DO NOTHING" + returningXID
}

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

// placeholders returns what stands for values, and how many of them are parameters.
func placeholders(kinds []kind) (all []string, n int) {
	for _, k := range kinds {
		if k != isDefault {
			n++
		}
		all = append(all, k.placeholder(n))
	}
	return all, n
}
