package inbox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
)

// slowly makes the server wait for a lock while it counts a try, and count the try although the statement is cancelled meanwhile.
const slowly = `
CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
	BEGIN PERFORM pg_advisory_xact_lock(4711); EXCEPTION WHEN query_canceled THEN NULL; END;
	RETURN NEW;
END $f$;
CREATE TRIGGER slowly BEFORE INSERT ON inbox_attempt FOR EACH ROW EXECUTE FUNCTION slowly()`

// atTheLock are the sessions that have the lock of slowly, or wait for it.
const atTheLock = `
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// A process that stops while a try is being counted has not tried the message, and nothing is counted.
func TestTryThatIsCountedAsTheProcessStopsDoesNotCount(t *testing.T) {
	for name, wrap := range map[string]func(*inbox.Inbox, messaging.Handler) messaging.Handler{
		"unit":  func(b *inbox.Inbox, h messaging.Handler) messaging.Handler { return b.Wrap("billing", h) },
		"lease": func(b *inbox.Inbox, h messaging.Handler) messaging.Handler { return b.WrapLeased("billing", h) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldIn(t, pgtest.OpenApart(t).DB)
			_, err := w.db.ExecContext(t.Context(), slowly)
			require.NoError(t, err)
			holder, err := w.db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			_, err = holder.ExecContext(t.Context(), "SELECT pg_advisory_xact_lock(4711)")
			require.NoError(t, err)
			m := unordered("m1")
			m.Attempt = 2 // so that the try is counted before it is made
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			handler := messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error { return ctx.Err() })
			go func() { done <- wrap(w.box, handler).Handle(ctx, m) }()
			locks := func(n int) func() bool {
				return func() bool { return column[int](t, w.db.DB, atTheLock)[0] == n }
			}
			await.True(t, locks(2), "the try is being counted")
			stop()
			require.NoError(t, holder.Rollback())
			require.ErrorIs(t, <-done, context.Canceled)
			await.True(t, locks(0), "the server has ended the statement")
			require.Empty(t, column[int](t, w.db.DB, "SELECT attempts FROM inbox_attempt"))
		})
	}
}
