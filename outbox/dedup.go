package outbox

import (
	"context"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/pgsql"
)

const (
	// takeKeys enters the keys. It returns which of them were there already, and the event that has each key. A key is as old as its event, whose time is
	// that of a delayed one, so that it is there for as long as the event can be cancelled by it.
	//
	// If two transactions use the same key, the second one waits for the first. If the first rolls back, the second
	// takes the key. The update locks the entry until COMMIT, so that no purge deletes it while an event is dropped
	// because of it. Keys are taken in their order, and before the locks of the ordering keys, so that no two
	// flushes wait for each other.
	takeKeys = `
WITH k AS (
	INSERT INTO {schema}.outbox_dedup (tenant_id, dedup_key, event_id, created_at)
	SELECT tenant, key, id, greatest(clock_timestamp(), not_before)
	FROM unnest($1::text[], $2::text[], $3::uuid[], $4::timestamptz[]) u(tenant, key, id, not_before) ORDER BY tenant COLLATE "C", key COLLATE "C"
	ON CONFLICT (tenant_id, dedup_key) DO UPDATE SET repeats = outbox_dedup.repeats + 1
	RETURNING tenant_id, dedup_key, event_id, repeats > 0 AS repeated)
SELECT pg_current_xact_id()::text, tenant_id, dedup_key, event_id, repeated FROM k`

	// forgetKeys leaves out keys that a flush has locked, because they are in use.
	forgetKeys = `
DELETE FROM {schema}.outbox_dedup WHERE (tenant_id, dedup_key) IN (
	SELECT tenant_id, dedup_key FROM {schema}.outbox_dedup
	WHERE created_at < (SELECT clock_timestamp()) - $1::interval ORDER BY created_at LIMIT 1000 FOR UPDATE SKIP LOCKED)`
	forgetLimit = 1000
)

type dedupKey struct{ tenant, key string }

// anyDeduped reports whether an event has a key. An envelope is large, so none is copied.
func anyDeduped(evs []event.Envelope) bool {
	for i := range evs {
		if evs[i].Delivery.DedupKey != "" {
			return true
		}
	}
	return false
}

// dedupe returns the events to store: events with a new key, and events without a key. Each other event gets the id
// of the event that it repeats. xid is the id of the transaction, "" if no statement was needed.
func (s *Store) dedupe(ctx context.Context, h outboxdb.Conn, evs []event.Envelope) (kept []event.Envelope, xid string, err error) {
	if !anyDeduped(evs) {
		return evs, "", nil
	}
	first := map[dedupKey]string{} // event by key
	var tenants, keys, ids []string
	var times []*time.Time
	for i := range evs {
		key := dedupKey{evs[i].TenantID, evs[i].Delivery.DedupKey}
		if _, seen := first[key]; !seen && key.key != "" {
			first[key] = evs[i].ID
			tenants, keys, ids = append(tenants, key.tenant), append(keys, key.key), append(ids, evs[i].ID)
			at := &evs[i].Delivery.NotBefore
			if at.IsZero() {
				at = nil
			}
			times = append(times, at)
		}
	}
	repeated := map[dedupKey]bool{}
	// Each row is the first event of a key, and whether it was there already.
	err = h.Query(ctx, takeKeys, []any{tenants, keys, ids, times}, func(scan pgsql.Scan) error {
		var key dedupKey
		var id string
		var again bool
		if err := scan(&xid, &key.tenant, &key.key, &id, &again); err != nil {
			return err
		}
		first[key], repeated[key] = id, again
		return nil
	})
	if err != nil {
		return nil, "", outboxdb.Wrap(fmt.Sprintf("take %d dedup keys", len(keys)), err)
	}
	for i := range evs {
		key := dedupKey{evs[i].TenantID, evs[i].Delivery.DedupKey}
		switch {
		case key.key == "":
			kept = append(kept, evs[i])
		case repeated[key]:
			evs[i].ID = first[key]
		default:
			kept = append(kept, evs[i])
			repeated[key] = true // by later events of this flush
		}
	}
	return kept, xid, nil
}

// expireKeys forgets the dedup keys that are older than [Config.DedupRetention].
func (s *Store) expireKeys(ctx context.Context) error {
	if s.cfg.DedupRetention < 0 {
		return nil
	}
	for {
		n, err := s.box.Run.Exec(ctx, s.box.DB, forgetKeys, s.cfg.DedupRetention)
		if err != nil {
			return outboxdb.Wrap("forget dedup keys", err)
		}
		if n < forgetLimit {
			return nil
		}
	}
}
