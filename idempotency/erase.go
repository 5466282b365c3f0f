package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// erase keeps the rows of the keys: without them the requests would be executed again.
const erase = `UPDATE {schema}.idempotency_keys SET headers = '{}', body = NULL, omitted = '` + OmittedErased + `'
WHERE tenant_id = $1 AND principal_hash = $2 AND state = 'completed' AND omitted IS DISTINCT FROM '` + OmittedErased + `'`

// Erase removes the stored answers of a principal, for example of a person who wants to be forgotten. The keys stay until they expire, with hashes
// only: a retry is not executed again, and its answer is a tombstone ([OmittedErased]). Erase returns how many answers were removed.
//
// Requests that are being worked on are left alone, and so are the results of their steps: call it again when they are done. Answers of [Anonymous]
// scopes belong to no principal. tenant is that of the scope, "" for Config.DefaultTenant. There is no index for this: Erase reads the whole table,
// which holds the keys of one TTL. Other processes may serve an answer from memory for a minute longer, see [Config.Cache], and so may this one if
// db is a transaction.
func (s *Store) Erase(ctx context.Context, db bun.IDB, tenant, principal string) (int64, error) {
	if principal == "" {
		return 0, errors.New("idempotency: Erase: the principal is empty: pass the Scope.Principal whose answers are to be removed")
	}
	if tenant == "" {
		tenant = s.cfg.DefaultTenant
	}
	n, err := s.run.Exec(ctx, db, erase, tenant, hashPrincipal(tenant, principal).column())
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
func (h principalHash) column() any {
	if h == (principalHash{}) {
		return nil
	}
	return h[:]
}
