package console

import (
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/outbox"
)

// auditRow is one thing that was done.
type auditRow struct {
	At                    time.Time
	Actor, Action, Reason string
	ID                    string // of the event; "" for an entry that stands for many
	Count                 int64
	Where                 string
	Type, Topic, Tenant   string
}

// auditView is a page of the audit.
type auditView struct {
	Tabs        []link
	Box, ID     string
	Rows        []auditRow
	First, Next string
}

// audit lists what was done, the newest first.
func (c *Console) audit(v *visit) error {
	q := v.URL.Query()
	s, err := c.selected(url.Values{fieldBox: q[fieldBox], fieldID: q[fieldID]}, v.now)
	if err != nil {
		return invalid(err)
	}
	before, err := strconv.ParseInt(q.Get(fieldBefore), 10, 64)
	if err != nil && q.Get(fieldBefore) != "" {
		return invalid(errors.New("the address of this page is damaged: begin with the first page"))
	}
	view := &auditView{Box: s.Box, ID: s.ID, Tabs: c.tabs("audit", s.Box)}
	var last int64
	if view.Rows, last, err = c.auditRows(v, &s, before, perPage+1); err != nil {
		return err
	}
	q = url.Values{fieldBox: {s.Box}}
	if s.ID != "" {
		q.Set(fieldID, s.ID)
	}
	if before > 0 {
		view.First = "audit?" + q.Encode()
	}
	if len(view.Rows) > perPage {
		view.Rows = view.Rows[:perPage]
		view.Next = "audit?" + with(q, url.Values{fieldBefore: {strconv.FormatInt(last, 10)}}).Encode()
	}
	return v.show("audit", "Audit", view)
}

// auditRows reads entries before one of them; last is the id of the last one that fits on a page.
func (c *Console) auditRows(v *visit, s *selection, before int64, limit int) (rows []auditRow, last int64, err error) {
	if s.Box == boxInbox {
		var from *inbox.AuditEntry
		if before > 0 {
			from = &inbox.AuditEntry{ID: before}
		}
		entries, err := c.cfg.Inbox.Audit(v.Context(), inbox.AuditFilter{MessageKey: s.ID}, from, limit)
		for n, e := range entries {
			if n < perPage {
				last = e.ID
			}
			rows = append(rows, auditRow{
				At: e.At, Actor: e.Actor, Action: e.Action, Reason: e.Reason, ID: e.Key.MessageKey, Count: e.Messages,
				Where: "consumer " + e.Key.Consumer, Type: e.Type, Topic: e.Topic, Tenant: e.Key.TenantID,
			})
		}
		return rows, last, err
	}
	var from *outbox.AuditEntry
	if before > 0 {
		from = &outbox.AuditEntry{ID: before}
	}
	entries, err := c.cfg.Outbox.Audit(v.Context(), outbox.AuditFilter{EventID: s.ID}, from, limit)
	for n, e := range entries {
		if n < perPage {
			last = e.ID
		}
		rows = append(rows, auditRow{
			At: e.At, Actor: e.Actor, Action: e.Action, Reason: e.Reason, ID: e.EventID, Count: e.Events, Where: "outbox", Type: e.Type,
			Topic: e.Topic, Tenant: e.TenantID,
		})
	}
	return rows, last, err
}

// auditOf reads what was done to one event or message before.
func (c *Console) auditOf(v *visit, r ref) ([]auditRow, error) {
	rows, _, err := c.auditRows(v, &selection{Box: r.Box, ID: r.ID}, 0, perPage)
	return rows, err
}
