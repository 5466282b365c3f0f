package inbox

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// An entry proves the transaction that wrote it, and no other one.
func TestEntryProvesTheTransactionThatWroteIt(t *testing.T) {
	db := pgtest.Migrated(t, pgtest.Inbox)
	box := New(uow.New(db.DB, &uow.Config{Source: "test"}), nil)
	m := messaging.NewMessage(event.Envelope{ID: uuid.Must(uuid.NewV7()).String(), Source: "test", Topic: "t"}, 1, nil)
	id := store.Identify("c", m)
	var xid string
	require.NoError(t, box.store.Units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		became, err := box.table.Entries.Enter(ctx, u, id)
		require.NoError(t, err)
		require.Equal(t, store.Fresh, became)
		require.NoError(t, u.DB().NewRaw("SELECT pg_current_xact_id()::text").Scan(ctx, &xid))
		found, err := box.table.Entries.Proof(id)(ctx, db.DB, xid)
		require.NoError(t, err)
		require.False(t, found, "not yet")
		return nil
	}))
	another := id
	another.Consumer = "d"
	for _, c := range []struct {
		id   store.Identity
		xid  string
		want bool
	}{{id, xid, true}, {id, "7", false}, {another, xid, false}} {
		found, err := box.table.Entries.Proof(c.id)(t.Context(), db.DB, c.xid)
		require.NoError(t, err)
		require.Equal(t, c.want, found)
	}
}
