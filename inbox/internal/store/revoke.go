package store

import (
	"context"
	"fmt"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// revokeEntries removes entries that one transaction has made.
const revokeEntries = `
DELETE FROM {schema}.inbox WHERE message_key = ANY($1::uuid[]) AND consumer = $2::text AND xmin::text = mod($3::text::numeric, 4294967296)::text`

// Revoke removes the entries of messages whose handler has sent COMMIT itself, against the rules. That COMMIT has stored the entries before
// the handler had ended, in a batch also the entries of later messages, and all of these would count as handled. Other changes that it has
// committed stay, and are made again by the next try.
func (t entryTable) Revoke(ctx context.Context, consumer string, cause error, ids ...Identity) error {
	xid := pgerr.MayHaveCommitted(cause)
	if xid == "" {
		return nil
	}
	keys := make([]string, len(ids))
	for n, id := range ids {
		keys[n] = id.Key.String()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.Patience())
	defer cancel()
	if _, err := t.SQL.Exec(ctx, t.DB(ctx), revokeEntries, keys, consumer, xid); err != nil {
		return fmt.Errorf("inbox: take back the entries of %d messages of consumer %s, whose handler has sent COMMIT: %w", len(ids), consumer, err)
	}
	return nil
}
