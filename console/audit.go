package console

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

// boxKeys is the name of idempotency keys where pages distinguish by box. Keys have an audit and no dead letters.
const boxKeys ops.Box = "keys"

// auditView is the data of a page of the audit.
type auditView struct {
	Tabs  []tab
	Box   ops.Box
	ID    string
	Rows  []auditRow
	Form  frame.Filter
	Pager frame.Pager
}

// auditRow is one entry of the audit. Event is the address of the page about its event or message, "" if the console has no such page.
type auditRow struct {
	operator.AuditEntry

	Event string
}

// Where returns the part of oncebox that the entry belongs to, as the page calls it.
func (r *auditRow) Where() string {
	switch r.Part {
	case operator.PartInbox:
		return "consumer " + r.Consumer
	case operator.PartIdempotency:
		return "key of a request"
	default:
		return "outbox"
	}
}

// showAudit lists the entries of one part or of all, the newest first.
func showAudit(v *visit) error {
	q := v.URL.Query()
	view := &auditView{Box: ops.Box(q.Get(fieldBox)), ID: strings.TrimSpace(q.Get(fieldID))}
	if view.ID != "" && uuid.Validate(view.ID) != nil {
		return invalid(fmt.Errorf("%s: %q is not an id: ids are UUIDs, as the lists show them", fieldID, view.ID))
	}
	var before *operator.AuditEntry
	if at := q.Get(fieldBefore); at != "" {
		id, err := strconv.ParseInt(at, 10, 64)
		if err != nil || id < 0 {
			return invalid(errDamaged)
		}
		before = &operator.AuditEntry{ID: id}
	}
	part, err := partOf(view.Box)
	if err == nil {
		view.Tabs, err = auditTabs(v.Console, view.Box)
	}
	if err != nil {
		return invalid(err)
	}
	last, err := view.read(v, operator.AuditFilter{Part: part, EventID: view.ID}, before)
	if err != nil {
		return err
	}
	fields := frame.Set(map[string]string{fieldBox: string(view.Box), fieldID: view.ID})
	view.Form = v.filter(fields, frame.Set(map[string]string{fieldBox: string(view.Box)}))
	var next url.Values
	if last != nil {
		next = url.Values{fieldBefore: {strconv.FormatInt(last.ID, 10)}}
	}
	view.Pager = frame.NewPager(pageAudit, q, fields, len(view.Rows), next)
	return v.show(pageAudit, "Audit", view)
}

const (
	// mostEntries is how many entries a page reads at most: an action on many messages has an entry for each, and is one row.
	mostEntries = 5000
	// sameAction is the longest time between two entries of one action.
	sameAction = time.Minute
)

// read reads the entries before an entry (nil: from the newest on) until a page is full. It returns the last entry of the page, nil if there is no further
// page.
func (a *auditView) read(v *visit, filter operator.AuditFilter, before *operator.AuditEntry) (*operator.AuditEntry, error) {
	for read, limit := 0, perPage+1; ; limit = mostEntries / 10 {
		rows, err := auditRows(v, filter, before, limit)
		if err != nil {
			return nil, err
		}
		for n := range rows {
			entry := rows[n].AuditEntry
			if len(a.Rows) > 0 && filter.EventID == "" && a.Rows[len(a.Rows)-1].join(&entry, before) {
				before = &entry
				continue
			}
			if len(a.Rows) == perPage {
				return before, nil
			}
			a.Rows, before = append(a.Rows, rows[n]), &entry
		}
		if read += len(rows); len(rows) < limit {
			return nil, nil
		} else if read >= mostEntries {
			return before, nil
		}
	}
}

// join makes the row stand for an entry as well, if both belong to one action on many events or messages. last is the latest entry that the row stands for.
func (r *auditRow) join(e, last *operator.AuditEntry) bool {
	if e.EventID == "" || last.EventID == "" || last.At.Sub(e.At).Abs() > sameAction ||
		e.Part != r.Part || e.Actor != r.Actor || e.Action != r.Action || e.Reason != r.Reason || e.Consumer != r.Consumer {
		return false
	}
	r.Events += e.Events
	r.EventID, r.Event = "", ""
	if e.Type != r.Type {
		r.Type, r.TenantID = "", ""
	}
	return true
}

// partOf returns the part of oncebox for the box of a page.
func partOf(box ops.Box) (operator.Part, error) {
	parts := map[ops.Box]operator.Part{
		"": operator.EveryPart, ops.BoxOutbox: operator.PartOutbox, ops.BoxInbox: operator.PartInbox, boxKeys: operator.PartIdempotency,
	}
	part, known := parts[box]
	if !known {
		return "", fmt.Errorf("%s: %q is none of outbox, inbox and keys", fieldBox, box)
	}
	return part, nil
}

// auditTabs returns a tab for all entries, and a tab for each part that the console shows. It fails if current is not among them.
func auditTabs(c *Console, current ops.Box) (tabs []tab, err error) {
	known := false
	for _, t := range []struct {
		box  ops.Box
		name string
		has  bool
	}{
		{"", "All", true}, {ops.BoxOutbox, "Outbox", c.cfg.Outbox != nil}, {ops.BoxInbox, titleConsumers, c.cfg.Inbox != nil},
		{boxKeys, titleKeys, c.cfg.Idempotency != nil},
	} {
		if !t.has {
			continue
		}
		one := tab{link: link{Name: t.name, Href: "audit?" + url.Values{fieldBox: {string(t.box)}}.Encode()}, Box: t.box}
		if t.box == "" {
			one.Href = "audit"
		}
		if t.box == current {
			one.Class, known = classCurrent, true
		}
		tabs = append(tabs, one)
	}
	if !known {
		return nil, fmt.Errorf("%s: %q is none of outbox, inbox and keys, or this page does not show it", fieldBox, current)
	}
	return tabs, nil
}

func auditRows(v *visit, filter operator.AuditFilter, before *operator.AuditEntry, limit int) (rows []auditRow, err error) {
	entries, err := v.view().Audit(v.Context(), filter, before, limit)
	_, linked := v.routes["GET "+pageEvent]
	for _, e := range entries {
		row := auditRow{AuditEntry: e}
		if linked && e.EventID != "" {
			row.Event = frame.Event(e.EventID, "")
		}
		rows = append(rows, row)
	}
	return rows, err
}

// auditOf reads the audit entries of one event or message.
func auditOf(v *visit, r ref) ([]auditRow, error) {
	part, err := partOf(r.Box)
	if err != nil {
		return nil, err
	}
	return auditRows(v, operator.AuditFilter{Part: part, EventID: r.ID}, nil, perPage)
}
