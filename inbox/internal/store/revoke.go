package store

import (
	"context"
	"fmt"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// revokeEntries removes the entries that one transaction has made.
const revokeEntries = `
DELETE FROM {schema}.inbox WHERE message_key = ANY($1::uuid[]) AND consumer = $2::text AND xmin::text = mod($3::text::numeric, 4294967296)::text`

// Revoke takes back the entries of messages whose handler has sent COMMIT itself, against the rules: it has committed them before it had ended, for
// a batch those of the messages behind it as well. They would pass for handled. What else it has committed stays, and is done again.
func (t entryTable) Revoke(ctx context.Context, consumer string, cause error, ids ...Identity) error {
	xid := pgsql.MayHaveCommitted(cause)
	if xid == "" {
		return nil
	}
	keys := make([]string, len(ids))
	for n, id := range ids {
		keys[n] = id.Key.String()
	}
	ctx, cancel := t.Bounded(context.WithoutCancel(ctx))
	defer cancel()
	if _, err := t.SQL.Exec(ctx, t.DB(ctx), revokeEntries, keys, consumer, xid); err != nil {
		return fmt.Errorf("inbox: take back the entries of %d messages of consumer %s, whose handler has sent COMMIT: %w", len(ids), consumer, err)
	}
	return nil
}
