package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/oncebox/oncebox/internal/pace"
)

// Clean ensures the partitions ahead, drops the expired ones, deletes the dead letters that are older than
// [Config.DeadRetention] and the audit that is older than [Config.AuditRetention], and forgets the dedup keys that are older
// than [Config.DedupRetention], once. It is safe in any number of processes. What [Config.BeforeDrop] refuses is logged and
// counted, is no error here, and is tried again by the next Clean.
func (s *Store) Clean(ctx context.Context) error {
	err := s.EnsurePartitions(ctx)
	_, drop := s.dropExpired(ctx)
	return errors.Join(err, drop, s.expireDead(ctx), s.expireAudit(ctx), s.expireKeys(ctx))
}

// chunk is how many entries of the audit one statement deletes.
const chunk = 5000

const (
	oldAge = `SELECT clock_timestamp() - $1::interval`

	// forgetDead is discardDead with an audit of groups instead of single events.
	forgetDead = `
WITH ` + deleteDead + `,
noted AS (
	INSERT INTO {schema}.outbox_audit (actor, action, events, tenant_id, topic, event_type, reason)
	SELECT $3::text, $4::text, count(*), tenant_id, topic, event_type, $5::text FROM d GROUP BY tenant_id, topic, event_type)` +
		freeKeys

	// forgetAudit asks for the time once: a volatile function cannot bound the scan of an index.
	forgetAudit = `
DELETE FROM {schema}.outbox_audit WHERE ctid = ANY (ARRAY(
	SELECT ctid FROM {schema}.outbox_audit WHERE at < (SELECT clock_timestamp()) - $1::interval LIMIT $2::integer))`
)

// expireDead discards the dead letters that are older than their retention. Their keys go on: blocked by something that
// is not there any more, they would wait for ever.
func (s *Store) expireDead(ctx context.Context) error {
	if s.cfg.DeadRetention <= 0 {
		return nil
	}
	var before time.Time
	if err := s.sql.QueryRow(ctx, s.db, oldAge, []any{s.cfg.DeadRetention}, &before); err != nil {
		return wrap("ask for the time", err)
	}
	by := By{Actor: retentionActor, Reason: "dead for more than " + s.cfg.DeadRetention.String()}
	n, err := s.sweep(ctx, deed{action: ActionExpire, move: forgetDead, by: by}, DeadFilter{DiedBefore: before}, pace.New(0, defaultBulk), nil)
	if n > 0 {
		s.log.WarnContext(ctx, "oncebox: dead letters were deleted by their retention", "events", n, "died_before", before)
	}
	return err
}

func (s *Store) expireAudit(ctx context.Context) error {
	if s.cfg.AuditRetention < 0 {
		return nil
	}
	for n := int64(chunk); n == chunk; {
		var err error
		if n, err = s.sql.Exec(ctx, s.db, forgetAudit, s.cfg.AuditRetention, chunk); err != nil {
			return wrap("delete old entries of the audit", err)
		}
	}
	return nil
}
