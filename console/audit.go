package console

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/outbox"
)

// boxKeys is where decisions about idempotency keys are, beside the boxes of dead letters.
const boxKeys = "keys"

// auditRow is one thing that was done.
type auditRow struct {
	At                    time.Time
	Actor, Action, Reason string
	ID                    string // of the event; "" for an entry that stands for many
	Key                   string // of a request
	Step                  string
	Count                 int64
	Where                 string
	Type, Topic, Tenant   string

	box string
	seq int64 // its id in its audit
}

// auditView is a page of the audit.
type auditView struct {
	Tabs        []tab
	Box, ID     string
	Rows        []auditRow
	First, Next string
}

// audit lists what was done, the newest first: in all parts, or in one of them.
func (c *Console) audit(v *visit) error {
	q := v.URL.Query()
	view := &auditView{Box: q.Get(fieldBox), ID: strings.TrimSpace(q.Get(fieldID))}
	if view.ID != "" && uuid.Validate(view.ID) != nil {
		return invalid(fmt.Errorf("%s: %q is no id: ids are UUIDs, as the lists show them", fieldID, view.ID))
	}
	before, err := auditPlaceOf(q.Get(fieldBefore))
	if err != nil {
		return invalid(err)
	}
	if view.Tabs, err = c.auditTabs(view.Box); err != nil {
		return invalid(err)
	}
	if view.Rows, err = c.auditRows(v, view.Box, view.ID, before, perPage+1); err != nil {
		return err
	}
	q = url.Values{}
	for field, value := range map[string]string{fieldBox: view.Box, fieldID: view.ID} {
		if value != "" {
			q.Set(field, value)
		}
	}
	if len(before) > 0 {
		view.First = "audit?" + q.Encode()
	}
	if len(view.Rows) > perPage {
		view.Rows = view.Rows[:perPage]
		view.Next = "audit?" + with(q, url.Values{fieldBefore: {before.behind(view.Rows).String()}}).Encode()
	}
	return v.show("audit", "Audit", view)
}

// auditTabs are the parts that have an audit, behind all of them together. An error: there is no such part.
func (c *Console) auditTabs(current string) (tabs []tab, err error) {
	known := false
	for _, t := range []struct {
		box, name string
		has       bool
	}{{"", "All", true}, {boxOutbox, "Outbox", c.cfg.Outbox != nil}, {boxInbox, "Consumers", c.cfg.Inbox != nil}, {boxKeys, "Keys", c.cfg.Idempotency != nil}} {
		if !t.has {
			continue
		}
		one := tab{link: link{Name: t.name, Href: "audit?" + url.Values{fieldBox: {t.box}}.Encode()}, Box: t.box}
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

// auditPlace is the place behind a page: of each audit the id of the last entry that was shown.
type auditPlace map[string]int64

func auditBoxes() [3]string { return [...]string{boxOutbox, boxInbox, boxKeys} }

func auditPlaceOf(text string) (auditPlace, error) {
	if text == "" {
		return nil, nil
	}
	place := auditPlace{}
	parts := strings.Split(text, ".")
	for n, box := range auditBoxes() {
		if n >= len(parts) {
			return nil, errors.New("the address of this page is damaged: begin with the first page")
		}
		id, err := strconv.ParseInt(parts[n], 10, 64)
		if err != nil || id < 0 {
			return nil, errors.New("the address of this page is damaged: begin with the first page")
		}
		place[box] = id
	}
	return place, nil
}

// behind is the place behind rows that begin at this one.
func (p auditPlace) behind(rows []auditRow) auditPlace {
	next := auditPlace{}
	maps.Copy(next, p)
	for n := range rows {
		next[rows[n].box] = rows[n].seq
	}
	return next
}

func (p auditPlace) String() string {
	var parts []string
	for _, box := range auditBoxes() {
		parts = append(parts, strconv.FormatInt(p[box], 10))
	}
	return strings.Join(parts, ".")
}

// auditRows reads the newest entries before a place: of one box, or of all for "". With an id it reads what was done to one event or message.
func (c *Console) auditRows(v *visit, box, id string, before auditPlace, limit int) ([]auditRow, error) {
	var lists [][]auditRow
	for _, part := range []struct {
		box  string
		has  bool
		read func(*visit, string, int64, int) ([]auditRow, error)
	}{
		{boxOutbox, c.cfg.Outbox != nil, c.outboxAudit}, {boxInbox, c.cfg.Inbox != nil, c.inboxAudit},
		{boxKeys, c.cfg.Idempotency != nil && id == "", c.keysAudit},
	} {
		if !part.has || box != "" && box != part.box {
			continue
		}
		rows, err := part.read(v, id, before[part.box], limit)
		if err != nil {
			return nil, err
		}
		lists = append(lists, rows)
	}
	return newestOf(lists, limit), nil
}

// newestOf takes the newest of several lists, each of which keeps its order: by that it is paged.
func newestOf(lists [][]auditRow, limit int) (all []auditRow) {
	for len(all) < limit {
		newest := -1
		for n := range lists {
			if len(lists[n]) > 0 && (newest < 0 || lists[n][0].At.After(lists[newest][0].At)) {
				newest = n
			}
		}
		if newest < 0 {
			break
		}
		all, lists[newest] = append(all, lists[newest][0]), lists[newest][1:]
	}
	return all
}

func (c *Console) outboxAudit(v *visit, id string, before int64, limit int) (rows []auditRow, err error) {
	var from *outbox.AuditEntry
	if before > 0 {
		from = &outbox.AuditEntry{ID: before}
	}
	entries, err := c.cfg.Outbox.Audit(v.Context(), outbox.AuditFilter{EventID: id}, from, limit)
	for _, e := range entries {
		rows = append(rows, auditRow{
			At: e.At, Actor: e.Actor, Action: e.Action, Reason: e.Reason, ID: e.EventID, Count: e.Events, Where: "outbox", Type: e.Type,
			Topic: e.Topic, Tenant: e.TenantID, box: boxOutbox, seq: e.ID,
		})
	}
	return rows, err
}

func (c *Console) inboxAudit(v *visit, id string, before int64, limit int) (rows []auditRow, err error) {
	var from *inbox.AuditEntry
	if before > 0 {
		from = &inbox.AuditEntry{ID: before}
	}
	entries, err := c.cfg.Inbox.Audit(v.Context(), inbox.AuditFilter{MessageKey: id}, from, limit)
	for _, e := range entries {
		rows = append(rows, auditRow{
			At: e.At, Actor: e.Actor, Action: e.Action, Reason: e.Reason, ID: e.Key.MessageKey, Count: e.Messages,
			Where: "consumer " + e.Key.Consumer, Type: e.Type, Topic: e.Topic, Tenant: e.Key.TenantID, box: boxInbox, seq: e.ID,
		})
	}
	return rows, err
}

func (c *Console) keysAudit(v *visit, _ string, before int64, limit int) (rows []auditRow, err error) {
	var from *idempotency.AuditEntry
	if before > 0 {
		from = &idempotency.AuditEntry{ID: before}
	}
	entries, err := c.cfg.Idempotency.Audit(v.Context(), c.db, idempotency.AuditFilter{}, from, limit)
	for _, e := range entries {
		rows = append(rows, auditRow{
			At: e.At, Actor: e.Actor, Action: e.Action, Reason: e.Reason, Key: e.Key, Step: e.Step, Count: 1, Where: "key of a request", Tenant: e.Tenant,
			box: boxKeys, seq: e.ID,
		})
	}
	return rows, err
}

// auditOf reads what was done to one event or message before.
func (c *Console) auditOf(v *visit, r ref) ([]auditRow, error) {
	return c.auditRows(v, r.Box, r.ID, nil, perPage)
}
