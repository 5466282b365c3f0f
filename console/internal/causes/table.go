package causes

import (
	"fmt"
	"time"

	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
)

const (
	// FieldShow is the field of the list's address with the part of the list that is shown.
	FieldShow = "show"
	// Dead is the part with the causes of dead letters, and Archived that of the causes which are out of the other parts.
	Dead     = "dead"
	Archived = "archived"

	// Gone is the value of the address for an actor who asked for a cause that is gone.
	Gone = "gone"
)

// Table is a part of the list of causes. Now is the time of the page, and Notice what it reports, "" for nothing.
type Table struct {
	Now    time.Time
	Rows   []Row
	Tabs   []Tab
	Show   string
	Notice string
}

// Tab leads to a part of the list. Count is the number of its causes, and Class marks the part that is shown.
type Tab struct{ Name, Href, Class, Count string }

// NewTable returns a part of the list, with the limits of the consumers by name. The error is for a part that does not exist.
func NewTable(now time.Time, list []failures.Group, limits map[string]operator.Limit, show string) (*Table, error) {
	t := &Table{Now: now, Show: show}
	known := false
	for _, part := range []struct {
		show, name string
		has        func(g *failures.Group) bool
	}{
		{"", "All", func(g *failures.Group) bool { return !g.IsArchived() }},
		{"failing", "Tried again", func(g *failures.Group) bool { return !g.IsArchived() && g.Failing.Count > 0 }},
		{Dead, "Dead", func(g *failures.Group) bool { return !g.IsArchived() && g.Dead.Count > 0 }},
		{Archived, "Archived", (*failures.Group).IsArchived},
	} {
		var rows []Row
		for n := range list {
			if g := &list[n]; part.has(g) {
				rows = append(rows, RowOf(g, limits))
			}
		}
		tab := Tab{Name: part.name, Href: frame.Address(ListPage, frame.Set(map[string]string{FieldShow: part.show})), Count: words.Group(int64(len(rows)))}
		if part.show == show {
			t.Rows, tab.Class, known = rows, "current", true
		}
		t.Tabs = append(t.Tabs, tab)
	}
	if !known {
		return nil, fmt.Errorf("%s: %q is none of failing, %s and %s", FieldShow, show, Dead, Archived)
	}
	return t, nil
}
