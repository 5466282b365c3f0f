package idempotency

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// Each row costs a look-up of its steps, by their primary key: a batch of 5,000 of a million takes 0.2 s instead of 0.1.
//
// SKIP LOCKED: two purges take different rows, and a row that a request is just replacing is left alone.
const purge = `DELETE FROM {schema}.idempotency_keys WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {schema}.idempotency_keys WHERE expires_at <= now() ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED))`

// Purge removes the keys that have expired by the clock of the database, and the entries of the audit that are older than Config.AuditRetention, in
// batches of Config.PurgeBatch, until one is not full. Pass the pool: each batch then is a transaction of its own. It returns how many keys it
// removed, also when it fails. Only the size of the tables depends on when it runs.
func (s *Store) Purge(ctx context.Context, db bun.IDB) (int64, error) {
	ctx, span := s.tracer.Start(ctx, "idempotency.Purge")
	defer span.End()
	total, err := s.purgeKeys(ctx, db)
	if err = errors.Join(err, s.audit.Expire(ctx, db)); err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "purge failed")
		return total, err
	}
	span.SetAttributes(attribute.Int64("oncebox.keys", total))
	s.log.DebugContext(ctx, "oncebox: expired idempotency keys removed", "keys", total)
	return total, nil
}

func (s *Store) purgeKeys(ctx context.Context, db bun.IDB) (total int64, err error) {
	for {
		n, err := s.run.Exec(ctx, db, purge, s.cfg.PurgeBatch)
		if err != nil {
			return total, fmt.Errorf("idempotency: purge, after %d keys: %w", total, pgerr.Explain(err))
		}
		total += n
		s.purged.Add(ctx, n)
		if n < int64(s.cfg.PurgeBatch) {
			return total, nil
		}
	}
}
