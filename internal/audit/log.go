package audit

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

const (
	// defaultPage is the number of entries on a page if the caller sets no limit.
	defaultPage = 100
	// chunk is how many entries one DELETE removes, so that no statement takes long.
	chunk = 5000
)

const (
	list = `
SELECT id, at, part, actor, action, reason, tenant_id, coalesce(event_id::text, ''), events, topic, event_type, consumer, source, message_id,
	coalesce(encode(key_hash, 'hex'), ''), step, epoch, fingerprint
FROM {schema}.oncebox_audit a WHERE %s ORDER BY a.id DESC LIMIT %s`

	// forget reads the time once, in a sub-select: with a volatile function in the condition PostgreSQL
	// could not limit the scan of the index.
	forget = `
DELETE FROM {schema}.oncebox_audit WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.oncebox_audit WHERE part = $1::text AND at < (SELECT clock_timestamp()) - $2::interval LIMIT $3::integer))`
)

// Log reads the audit entries of one part of oncebox and removes old ones. It is safe for concurrent use.
type Log struct {
	// Part is the part. Errors begin with its name.
	Part operator.Part
	// Run runs the statements. They are not prepared, because the best index depends on the filter.
	Run *pgsql.Runner
	// Retention is how long entries are kept; below 0 for ever.
	Retention time.Duration
}

// List reads a page of at most limit entries (0: 100), the newest first. before is the last entry of the previous page (nil: begin with the
// newest); only its ID counts.
func (l *Log) List(
	ctx context.Context, db bun.IDB, filter operator.AuditFilter, before *operator.AuditEntry, limit int,
) (entries []operator.AuditEntry, err error) {
	statement, args, err := l.Page(filter, before, limit)
	if err != nil {
		return nil, l.wrap("list the audit", err)
	}
	entries, err = pgsql.Collect(l.Run.Query(ctx, db, statement, args...), func(scan pgsql.Scan, e *operator.AuditEntry) error {
		return scan(&e.ID, &e.At, &e.Part, &e.Actor, &e.Action, &e.Reason, &e.TenantID, &e.EventID, &e.Events, &e.Topic, &e.Type,
			&e.Consumer, &e.Source, &e.MessageID, &e.Key, &e.Step, &e.Epoch, &e.Fingerprint)
	})
	return entries, l.wrap("list the audit", err)
}

// Page returns the statement of [Log.List] and its arguments.
func (l *Log) Page(filter operator.AuditFilter, before *operator.AuditEntry, limit int) (statement string, args []any, err error) {
	w := &pgsql.Where{}
	if part := cmp.Or(filter.Part, l.Part); part != operator.EveryPart {
		w.Add("a.part = %s::text", string(part))
	}
	if filter.EventID != "" {
		id, err := uuid.Parse(filter.EventID)
		if err != nil {
			return "", nil, fmt.Errorf("AuditFilter.EventID %q is not a UUID", filter.EventID)
		}
		w.Add("a.event_id = %s::uuid", id.String())
	}
	if filter.TenantID != "" {
		w.Add("a.tenant_id = %s::text", filter.TenantID)
	}
	if filter.Consumer != "" {
		w.Add("a.consumer = %s::text AND a.consumer <> ''", filter.Consumer)
	}
	if filter.Key != "" {
		hash, err := hex.DecodeString(filter.Key)
		if err != nil {
			return "", nil, fmt.Errorf("AuditFilter.Key %q is not hexadecimal: give the Key of an AuditEntry", filter.Key)
		}
		w.Add("a.key_hash = %s::bytea", hash)
	}
	if filter.Fingerprint != "" {
		w.Add("a.fingerprint = %s::text AND a.fingerprint <> ''", filter.Fingerprint)
	}
	if before != nil {
		w.Add("a.id < %s::bigint", before.ID)
	}
	bound := w.Arg(cmp.Or(max(limit, 0), defaultPage))
	return fmt.Sprintf(list, w, bound), w.Args, nil
}

// Expire deletes the entries of the part that are older than the retention, 5,000 with each statement.
func (l *Log) Expire(ctx context.Context, db bun.IDB) error {
	if l.Retention < 0 {
		return nil
	}
	for n := int64(chunk); n == chunk; {
		var err error
		if n, err = l.Run.Exec(ctx, db, forget, string(l.Part), l.Retention, chunk); err != nil {
			return l.wrap("delete old entries of the audit", err)
		}
	}
	return nil
}

func (l *Log) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", l.Part, what, pgerr.Explain(err))
}
