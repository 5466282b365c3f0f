package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// By says who does something by hand, and why. Both go to the audit.
type By struct {
	// Actor is a person or a program, in the words of the organisation: a login, an address. Required.
	Actor string
	// Reason is for those who ask later, at most 2 KiB. Required where something is deleted.
	Reason string
}

// Actions of the audit.
const (
	ActionReplay  = "replay"
	ActionDiscard = "discard"
	ActionExpire  = "expire" // deleted by Config.DeadRetention
)

// retentionActor is who expires dead letters.
const retentionActor = "retention"

func (d deed) validate() error {
	var errs []error
	if strings.TrimSpace(d.by.Actor) == "" {
		errs = append(errs, errors.New(`By.Actor is empty: say who does it, as in outbox.By{Actor: "ann", Reason: "schema added"}`))
	}
	if why := d.needsReason(); why != "" && strings.TrimSpace(d.by.Reason) == "" {
		errs = append(errs, errors.New("By.Reason is empty: "+why))
	}
	return errors.Join(append(errs, event.ValidateIdentifier("By.Actor", d.by.Actor))...)
}

// needsReason says why a deed needs a reason, "" if it needs none.
func (d deed) needsReason() string {
	switch d.action {
	case ActionReplay, ActionReschedule:
		return ""
	case ActionEdit:
		return "the former payload is gone, say why"
	case ActionTakeOwnership:
		return "events are published from another place from now on, say why"
	case ActionRetention:
		return "published events are kept for another time from now on, say why"
	default:
		return "what is deleted is gone, say why"
	}
}

// AuditEntry is one thing that was done.
type AuditEntry struct {
	// ID grows with time.
	ID int64
	// At is when it was done, by the clock of the database.
	At time.Time
	// Actor and Reason are those of [By]. Action is one of the constants, [ActionReplay] for example.
	Actor, Action, Reason string
	// EventID is the event it was done to, "" for an entry of a tenant, or of the retention, which stands for Events of them.
	EventID string
	// Events is how many events the entry stands for.
	Events int64
	// TenantID, Topic and Type are those of the event.
	TenantID, Topic, Type string
}

// AuditFilter selects audit entries: those that agree with every field that is set.
type AuditFilter struct {
	// EventID selects what was done to one event.
	EventID string
}

const (
	// noteDeed enters each dead letter of d. Arguments: lanes, sequences, actor, action, reason.
	noteDeed = `
	INSERT INTO {schema}.outbox_audit (actor, action, event_id, tenant_id, topic, event_type, reason)
	SELECT $3::text, $4::text, id, tenant_id, topic, event_type, $5::text FROM d ORDER BY lane, seq`

	listAudit = `
SELECT id, at, actor, action, reason, coalesce(event_id::text, ''), events, tenant_id, topic, event_type
FROM {schema}.outbox_audit a WHERE %s ORDER BY a.id DESC LIMIT %s`
)

// Audit lists what was done by hand or by the retention, newest first. A page has at most limit entries (0: 100) and begins before
// the last one of the page before (nil: with the newest). Only its ID counts. Entries are kept for
// [Config.AuditRetention].
func (s *Store) Audit(ctx context.Context, filter AuditFilter, before *AuditEntry, limit int) ([]AuditEntry, error) {
	w := &pgsql.Where{}
	if filter.EventID != "" {
		id, err := uuid.Parse(filter.EventID)
		if err != nil {
			return nil, fmt.Errorf("outbox: AuditFilter.EventID %q is not a UUID", filter.EventID)
		}
		w.Add("a.event_id = %s::uuid", id.String())
	}
	if before != nil {
		w.Add("a.id < %s::bigint", before.ID)
	}
	if limit <= 0 {
		limit = defaultPage
	}
	bound := w.Arg(limit)
	out, err := pgsql.Collect(s.adHoc().Query(ctx, s.db, fmt.Sprintf(listAudit, w, bound), w.Args...), func(scan pgsql.Scan, e *AuditEntry) error {
		return scan(&e.ID, &e.At, &e.Actor, &e.Action, &e.Reason, &e.EventID, &e.Events, &e.TenantID, &e.Topic, &e.Type)
	})
	return out, wrap("list the audit", err)
}
