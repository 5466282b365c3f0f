package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/messaging"
)

// The unit of a parked message is run again after a conflict, and does not come as far as the message. That is no failed try of the message.
func TestUnitThatDoesNotReachTheMessageWhenItRunsAgainIsNoTry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := w.hasty(func(c *inbox.Config) { c.Retry.Tries = 1 })
	calls, closed := 0, make(chan struct{})
	p := readmodel.New(box, "balances", messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		switch calls++; calls {
		case 1:
			return errors.New("not now")
		case 2:
			w.exec("ALTER FUNCTION inbox_gate(text, bigint) RENAME TO inbox_gate_away")
			close(closed)
			return &pgconn.PgError{Severity: "ERROR", Code: "40001", Message: "could not serialize access"}
		}
		return w.effect(ctx, m)
	}))
	require.NoError(t, p.Handle(t.Context(), some("a", 1, 1)[0]))
	require.Equal(t, []string{"a1"}, w.parked())
	runParked(t, box)
	await.Receive(t, closed, "the handler has run")
	const handedBack = "SELECT p.attempts FROM inbox_parked p JOIN inbox_key k USING (consumer, key_lock) WHERE k.owner IS NULL"
	var attempts []int
	await.True(t, func() bool { attempts = column[int](t, w.db.DB, handedBack); return len(attempts) == 1 }, "the key is handed back")
	require.Equal(t, []int{1}, attempts)
	w.exec("ALTER FUNCTION inbox_gate_away(text, bigint) RENAME TO inbox_gate")
	w.awaitEffects(1)
}
