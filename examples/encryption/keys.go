package encryption

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
)

// Lifetime is how long a process keeps a key in memory.
const Lifetime = time.Minute

// Schema makes the table. A key without a secret was erased.
const Schema = `
CREATE TABLE IF NOT EXISTS event_key (
	tenant_id  text   NOT NULL,
	generation bigint NOT NULL,
	id         text   NOT NULL UNIQUE GENERATED ALWAYS AS (tenant_id || '/' || generation) STORED,
	secret     bytea,
	made_at    timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (tenant_id, generation)
)`

const (
	firstKey  = `INSERT INTO event_key (tenant_id, generation, secret) VALUES (?, 1, ?) ON CONFLICT DO NOTHING`
	latestKey = `SELECT id, secret FROM event_key WHERE tenant_id = ? ORDER BY generation DESC LIMIT 1`
	keyOfID   = `SELECT id, secret FROM event_key WHERE id = ?`

	// Rotation and erasure of a tenant's keys take the same lock, so that no new key is made after an erasure.
	lockTenant = `SELECT pg_advisory_xact_lock(hashtextextended('event_key/' || ?, 0))`
	nextKey    = `
INSERT INTO event_key (tenant_id, generation, secret)
SELECT tenant_id, max(generation) + 1, ?::bytea FROM event_key WHERE tenant_id = ? GROUP BY tenant_id HAVING bool_and(secret IS NOT NULL)`
	eraseKeys = `UPDATE event_key SET secret = NULL WHERE tenant_id = ?`
)

// Keys are the keys of all tenants. It is safe for concurrent use.
type Keys struct {
	db  *bun.DB
	now func() time.Time

	mu     sync.Mutex
	latest map[string]*key // by tenant
	known  map[string]*key // by id
}

// NewKeys returns the keys in a database. Give it a pool of its own: sealing happens while a unit of work holds one of its
// connections. Make the table with [Schema].
func NewKeys(db *bun.DB) *Keys {
	return &Keys{db: db, now: time.Now, latest: map[string]*key{}, known: map[string]*key{}}
}

// Rotate gives the tenant a new key for sealing. Other processes use it after [Lifetime] at the latest.
// Earlier keys can still open what they have sealed. A tenant without a key is left alone: it gets its
// first key with its first event.
func (k *Keys) Rotate(ctx context.Context, tenant string) error {
	err := k.change(ctx, tenant, nextKey, newSecret(), tenant)
	if err != nil {
		return fmt.Errorf("encryption: rotate the key of %s: %w", tenant, err)
	}
	return nil
}

// Erase makes everything that was sealed for the tenant unreadable for ever. It may be called again.
func (k *Keys) Erase(ctx context.Context, tenant string) error {
	// A tenant without any events must not get a key later either.
	_, err := k.db.NewRaw(firstKey, tenant, []byte(nil)).Exec(ctx)
	if err == nil {
		err = k.change(ctx, tenant, eraseKeys, tenant)
	}
	if err != nil {
		return fmt.Errorf("encryption: erase the keys of %s: %w", tenant, err)
	}
	return nil
}

func (k *Keys) change(ctx context.Context, tenant, statement string, args ...any) error {
	err := k.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewRaw(lockTenant, tenant).Exec(ctx); err != nil {
			return err
		}
		_, err := tx.NewRaw(statement, args...).Exec(ctx)
		return err
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.latest)
	clear(k.known)
	return err
}

// current returns the key that seals for the tenant. It makes the first one.
func (k *Keys) current(ctx context.Context, tenant string) (*key, error) {
	if found := k.remembered(k.latest, tenant); found != nil {
		return found, nil
	}
	if _, err := k.db.NewRaw(firstKey, tenant, newSecret()).Exec(ctx); err != nil {
		return nil, fmt.Errorf("make a key for %s: %w", tenant, err)
	}
	return k.load(ctx, k.latest, tenant, latestKey)
}

// byID returns a key that was used for sealing.
func (k *Keys) byID(ctx context.Context, id string) (*key, error) {
	if found := k.remembered(k.known, id); found != nil {
		return found, nil
	}
	return k.load(ctx, k.known, id, keyOfID)
}

func (k *Keys) load(ctx context.Context, memory map[string]*key, name, query string) (*key, error) {
	var id string
	var secret []byte
	began := k.now()
	switch err := k.db.NewRaw(query, name).Scan(ctx, &id, &secret); {
	case errors.Is(err, sql.ErrNoRows):
		// The row is missing, and not erased: this may be a replica that lags, or the wrong database. So
		// the error is not permanent.
		return nil, fmt.Errorf("there is no key %s here", name)
	case err != nil:
		return nil, fmt.Errorf("look up the key %s: %w", name, err)
	case secret == nil:
		return nil, fmt.Errorf("%w: %s", event.ErrErased, id)
	}
	loaded, err := newKey(id, secret, began.Add(Lifetime))
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	memory[name] = loaded
	return loaded, nil
}

func (k *Keys) remembered(memory map[string]*key, name string) *key {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := memory[name]
	if found == nil || k.now().After(found.until) {
		delete(memory, name)
		return nil
	}
	return found
}

func newSecret() []byte {
	secret := make([]byte, 32) // AES-256
	_, _ = rand.Read(secret)   // it never fails
	return secret
}
