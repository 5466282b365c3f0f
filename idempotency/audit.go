package idempotency

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// Actions of the audit.
const (
	ActionDone    = "done"     // a step was done: [StepDone]
	ActionNotDone = "not_done" // a step was not done: [StepNotDone]
)

// AuditEntry is one thing that was decided about a key.
type AuditEntry struct {
	// ID grows with time.
	ID int64
	// At is when it was decided, by the clock of the database.
	At time.Time
	// Actor and Reason are those of [By]. Action is [ActionDone] or [ActionNotDone].
	Actor, Action, Reason string
	// Key is the hash of the scope, in hexadecimal digits.
	Key string
	// Tenant is whose request it was.
	Tenant string
	// Step is the name of the step, and Epoch tells which beginning of it was meant.
	Step  string
	Epoch int
}

// AuditFilter selects audit entries: those that agree with every field that is set.
type AuditFilter struct {
	// Key selects what was decided about one key: the hash of its scope, in hexadecimal digits.
	Key string
	// Tenant selects what was decided about requests of one tenant.
	Tenant string
}

const (
	listAudit = `
SELECT id, at, actor, action, reason, encode(key_hash, 'hex'), tenant_id, step, epoch
FROM {schema}.idempotency_audit a WHERE %s ORDER BY a.id DESC LIMIT %s`

	forgetAudit = `
DELETE FROM {schema}.idempotency_audit WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.idempotency_audit WHERE at < (SELECT clock_timestamp()) - $1::interval LIMIT $2::integer))`
)

// defaultPage is the size of a page whose limit is not given.
const defaultPage = 100

// Audit lists what was decided about keys, newest first. A page has at most limit entries (0: 100) and begins before the last one of the page
// before (nil: with the newest). Only its ID counts. Entries are kept for [Config.AuditRetention].
func (s *Store) Audit(ctx context.Context, db bun.IDB, filter AuditFilter, before *AuditEntry, limit int) (list []AuditEntry, err error) {
	w := &pgsql.Where{}
	if filter.Key != "" {
		hash, err := hex.DecodeString(filter.Key)
		if err != nil {
			return nil, fmt.Errorf("idempotency: AuditFilter.Key %q is no hash: give its hexadecimal digits", filter.Key)
		}
		w.Add("a.key_hash = %s::bytea", hash)
	}
	if filter.Tenant != "" {
		w.Add("a.tenant_id = %s::text", filter.Tenant)
	}
	if before != nil {
		w.Add("a.id < %s::bigint", before.ID)
	}
	if limit <= 0 {
		limit = defaultPage
	}
	bound := w.Arg(limit)
	rows := s.run.AdHoc().Query(ctx, db, fmt.Sprintf(listAudit, w, bound), w.Args...)
	list, err = pgsql.Collect(rows, func(scan pgsql.Scan, e *AuditEntry) error {
		return scan(&e.ID, &e.At, &e.Actor, &e.Action, &e.Reason, &e.Key, &e.Tenant, &e.Step, &e.Epoch)
	})
	if err != nil {
		return nil, fmt.Errorf("idempotency: list the audit: %w", pgsql.Explain(err))
	}
	return list, nil
}

func (s *Store) expireAudit(ctx context.Context, db bun.IDB) error {
	if s.cfg.AuditRetention == KeepForever {
		return nil
	}
	for {
		n, err := s.run.Exec(ctx, db, forgetAudit, s.cfg.AuditRetention, s.cfg.PurgeBatch)
		if err != nil {
			return fmt.Errorf("idempotency: delete old entries of the audit: %w", pgsql.Explain(err))
		}
		if n < int64(s.cfg.PurgeBatch) {
			return nil
		}
	}
}
