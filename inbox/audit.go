package inbox

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
	// Reason is for those who ask later, at most 2 KiB. Required where something is deleted or given up.
	Reason string
}

// Actions of the audit.
const (
	ActionReplay  = "replay"
	ActionDiscard = "discard"
	ActionRetry   = "retry"
	ActionGiveUp  = "give_up"
	ActionExpire  = "expire" // deleted by Config.DeadRetention
)

// retentionActor is who expires dead letters.
const retentionActor = "retention"

// validate checks who does what.
func (by By) validate(action string) error {
	var errs []error
	if strings.TrimSpace(by.Actor) == "" {
		errs = append(errs, errors.New(`By.Actor is empty: say who does it, as in inbox.By{Actor: "ann", Reason: "handler mended"}`))
	}
	if why := needsReason(action); why != "" && strings.TrimSpace(by.Reason) == "" {
		errs = append(errs, errors.New("By.Reason is empty: "+why))
	}
	return errors.Join(append(errs, event.ValidateIdentifier("By.Actor", by.Actor))...)
}

// needsReason says why an action needs a reason, "" if it needs none.
func needsReason(action string) string {
	switch action {
	case ActionReplay, ActionRetry:
		return ""
	case ActionEdit:
		return "the former payload is gone, say why"
	case ActionGiveUp:
		return "what is behind the message waits for a decision, say why"
	default:
		return "what is deleted is gone, say why"
	}
}

// AuditEntry is one thing that was done.
type AuditEntry struct {
	ID                    int64
	At                    time.Time
	Actor, Action, Reason string
	// Key is the message it was done to. An entry of the retention stands for as many as Messages says, and has only the
	// consumer and the tenant in its key.
	Key                    MessageRef
	Messages               int64
	MessageID, Topic, Type string
}

// AuditFilter selects audit entries: those that agree with every field that is set.
type AuditFilter struct {
	// Consumer selects what was done to messages of one consumer.
	Consumer string
	// MessageKey selects what was done to one message, by whatever consumers.
	MessageKey string
}

const (
	// noteDeeds enters each message of a table expression. It begins the list of columns that every deed shares.
	noteDeeds = `
	INSERT INTO {schema}.inbox_audit (actor, action, reason, consumer, message_key, tenant_id, source, message_id, topic, event_type)
	SELECT $1::text, $2::text, $3::text, consumer, message_key, tenant_id, source, message_id, topic, event_type FROM `

	listAudit = `
SELECT id, at, actor, action, reason, consumer, coalesce(message_key::text, ''), tenant_id, source, messages, message_id, topic, event_type
FROM {schema}.inbox_audit a WHERE %s ORDER BY a.id DESC LIMIT %s`

	forgetAudit = `
DELETE FROM {schema}.inbox_audit WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.inbox_audit WHERE at < (SELECT clock_timestamp()) - $1::interval LIMIT $2::integer))`
)

// Audit lists what was done by hand or by the retention, newest first. A page has at most limit entries (0: 100) and begins
// before the last one of the page before (nil: with the newest). Only its ID counts. Entries are kept for
// [Config.AuditRetention].
func (i *Inbox) Audit(ctx context.Context, filter AuditFilter, before *AuditEntry, limit int) ([]AuditEntry, error) {
	w := &pgsql.Where{}
	if filter.Consumer != "" {
		w.Add("a.consumer = %s::text", filter.Consumer)
	}
	if filter.MessageKey != "" {
		key, err := uuid.Parse(filter.MessageKey)
		if err != nil {
			return nil, fmt.Errorf("inbox: AuditFilter.MessageKey %q is not a UUID", filter.MessageKey)
		}
		w.Add("a.message_key = %s::uuid", key.String())
	}
	if before != nil {
		w.Add("a.id < %s::bigint", before.ID)
	}
	if limit <= 0 {
		limit = defaultPage
	}
	bound := w.Arg(limit)
	rows := i.adHoc().Query(ctx, i.units.DB(ctx), fmt.Sprintf(listAudit, w, bound), w.Args...)
	list, err := pgsql.Collect(rows, func(scan pgsql.Scan, e *AuditEntry) error {
		return scan(&e.ID, &e.At, &e.Actor, &e.Action, &e.Reason, &e.Key.Consumer, &e.Key.MessageKey, &e.Key.TenantID, &e.Key.Source,
			&e.Messages, &e.MessageID, &e.Topic, &e.Type)
	})
	return list, wrapErr("list the audit", err)
}

func (i *Inbox) expireAudit(ctx context.Context) error {
	if i.cfg.AuditRetention == KeepForever {
		return nil
	}
	for n := int64(chunk); n == chunk; {
		var err error
		if n, err = i.patient.Exec(ctx, i.units.DB(ctx), forgetAudit, i.cfg.AuditRetention, chunk); err != nil {
			return wrapErr("delete old entries of the audit", err)
		}
	}
	return nil
}
