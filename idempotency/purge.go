package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// erase keeps the rows of the keys: without them the requests would be executed again.
const erase = `UPDATE {schema}.idempotency_keys SET headers = '{}', body = NULL, omitted = '` + OmittedErased + `'
WHERE tenant_id = $1 AND principal_hash = $2 AND state = 'completed' AND omitted IS DISTINCT FROM '` + OmittedErased + `'`

// Erase removes the stored answers of a principal, for example of a person who wants to be forgotten. The keys stay until they expire, with hashes
// only: a retry is not executed again, and its answer is a tombstone ([OmittedErased]). Erase returns how many answers were removed.
//
// Requests that are being worked on are left alone, and so are the results of their steps: call it again when they are done. Answers of [Anonymous]
// scopes belong to no principal. tenant is that of the scope, "" for Config.DefaultTenantID. There is no index for this: Erase reads the whole table,
// which holds the keys of one TTL. Other processes may serve an answer from memory for a minute longer, see [Config.Cache], and so may this one if
// db is a transaction.
func (s *Store) Erase(ctx context.Context, db bun.IDB, tenant, principal string) (int64, error) {
	if principal == "" {
		return 0, errors.New("idempotency: Erase: the principal is empty: pass the Scope.Principal whose answers are to be removed")
	}
	if tenant == "" {
		tenant = s.cfg.DefaultTenantID
	}
	hash := hashPrincipal(tenant, principal)
	n, err := s.run.Exec(ctx, db, erase, tenant, hash.column())
	s.cache.empty(time.Now())
	if err != nil {
		return 0, fmt.Errorf("idempotency: erase the answers of a principal of tenant %s: %w", tenant, pgerr.Explain(err))
	}
	return n, nil
}

// principalHash finds the answers of a principal, whose name is stored nowhere. All zero: no principal.
type principalHash [16]byte

// hashPrincipal must never change: stored rows are found by its result.
func hashPrincipal(tenant, principal string) (h principalHash) {
	if principal != "" {
		sum := hashOf("oncebox.idempotency.principal.1", tenant, principal)
		copy(h[:], sum[:])
	}
	return h
}

// column returns the hash as it is stored: NULL without a principal.
func (h *principalHash) column() any {
	if *h == (principalHash{}) {
		return nil
	}
	return h[:]
}
