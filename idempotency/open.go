package idempotency

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// openClaims reads the index of keys without an answer. A key of unknown outcome does not expire.
const openClaims = `
SELECT encode(k.key_hash, 'hex'), k.tenant_id, k.state = 'unknown', k.epoch, k.created_at, CASE WHEN k.owner IS NOT NULL THEN k.locked_until END,
	k.owner IS NOT NULL AND k.locked_until > clock_timestamp(),
	coalesce((SELECT json_agg(s.name ORDER BY s.begun_at, s.name) FROM {schema}.idempotency_step s
		WHERE s.key_hash = k.key_hash AND s.result IS NULL), '[]'),
	coalesce((SELECT json_agg(coalesce(s.label, '') ORDER BY s.begun_at, s.name) FROM {schema}.idempotency_step s
		WHERE s.key_hash = k.key_hash AND s.result IS NULL), '[]'),
	coalesce(k.request, ''), ` + principalShown + `, coalesce(k.caller, '')
FROM {schema}.idempotency_keys k
WHERE k.state <> 'completed' AND k.expires_at > clock_timestamp() AND ($1::text = '' OR k.tenant_id = $1::text)
ORDER BY k.created_at, k.key_hash LIMIT $2`

// Open is a key without an answer: a request works on it, or its process died.
type Open struct {
	// Key is the hash of the scope, in hexadecimal digits.
	Key string
	// Tenant is the tenant of the request, and Request its method and path, cut to 255 bytes. Request is known only while the outcome of a [StepOnce]
	// is open.
	Tenant, Request string
	// Principal is the beginning of the hash of the principal, the same for all its requests within a tenant; "" for an anonymous scope. Caller is
	// [Scope.Caller], known as long as Request.
	Principal, Caller string
	// Unknown says that the outcome of a step is unknown, and that requests with the key are refused until somebody resolves it.
	Unknown bool
	// Epoch counts the requests that have claimed the key.
	Epoch int
	// CreatedAt is when the first of them came, by the clock of the database.
	CreatedAt time.Time
	// LeaseUntil is when another request may take the key. Zero: it is free. Leased says that this time is in the future.
	LeaseUntil time.Time
	Leased     bool
	// Steps are the names of steps that were begun and have no outcome. While the key is leased, they are in progress.
	Steps []string
	// Labels are the labels of Steps, in the same order, see [WithLabel]. "": the step has no label.
	Labels []string
}

// Open lists the keys without an answer that have not expired, the oldest first: of one tenant, or of all if tenant is "". They belong to requests
// that are handled under a lease; in atomic mode the key and its answer are committed together.
func (s *Store) Open(ctx context.Context, db bun.IDB, tenant string, limit int) (list []Open, err error) {
	list, err = pgsql.Collect(s.run.Query(ctx, db, openClaims, tenant, limit), func(scan pgsql.Scan, o *Open) error {
		var until sql.NullTime
		var steps, labels []byte
		err := scan(&o.Key, &o.Tenant, &o.Unknown, &o.Epoch, &o.CreatedAt, &until, &o.Leased, &steps, &labels, &o.Request, &o.Principal, &o.Caller)
		if err != nil {
			return err
		}
		o.LeaseUntil = until.Time
		if err := errors.Join(json.Unmarshal(steps, &o.Steps), json.Unmarshal(labels, &o.Labels)); err != nil {
			return fmt.Errorf("the names of the steps: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("idempotency: list open keys: %w", pgerr.Explain(err))
	}
	return list, nil
}
