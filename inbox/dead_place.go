package inbox

import (
	"context"

	"github.com/google/uuid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

const (
	// listUnplaced finds dead letters of a release that did not park and wrote no locks.
	listUnplaced = `
SELECT ` + envelopeColumns + ` FROM (SELECT ` + listedColumns + ` FROM {schema}.inbox_dead WHERE key_lock IS NULL ORDER BY seq LIMIT 500) d`

	placeUnplaced = `
UPDATE {schema}.inbox_dead d SET key_lock = u.l
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::bigint[]) u(m, c, t, s, l)
WHERE d.message_key = u.m AND d.consumer = u.c AND d.tenant_id = u.t AND d.source = u.s AND d.key_lock IS NULL`
)

// placeDead gives every dead letter the lock of its key.
func (i *Inbox) placeDead(ctx context.Context) error {
	for {
		b, err := i.unplaced(ctx)
		if err != nil || len(b.locks) == 0 {
			return err
		}
		if _, err := i.adHoc().Exec(ctx, i.units.DB(ctx), placeUnplaced, b.keys, b.consumers, b.tenants, b.sources, b.locks); err != nil {
			return err
		}
	}
}

func (i *Inbox) unplaced(ctx context.Context) (b picked, err error) {
	rows, err := i.adHoc().Query(ctx, i.units.DB(ctx), listUnplaced)
	if err != nil {
		return b, err
	}
	defer rows.Close()
	for rows.Next() {
		k, e, err := scanEnvelope(rows.Scan)
		if err != nil {
			return b, err
		}
		lock, err := lockOf(k, e)
		if err != nil {
			return b, err
		}
		b.add(k, lock)
	}
	return b, rows.Err()
}

// lockOf is the lock of the key of a stored message.
func lockOf(k DeadKey, e event.Envelope) (int64, error) {
	key, err := uuid.Parse(k.MessageKey)
	if err != nil {
		return 0, err
	}
	id := identify(k.Consumer, messaging.NewMessage(e, 1, nil))
	if id.key != key {
		// Its identifiers were none, and were changed to be stored; see identifyInvalid.
		id = identity{key: key, consumer: k.Consumer, tenant: k.TenantID, source: k.Source}
	}
	return id.keyLock(), nil
}
