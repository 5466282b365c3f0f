//go:build unix

package uow_test

import (
	"context"
	"io"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/uow"
)

// lazyLog keeps the log in memory until a commit waits for it, so that a crash forgets transactions that did not wait.
var lazyLog = map[string]string{"wal_writer_delay": "10s", "wal_writer_flush_after": "1TB", "bgwriter_lru_maxpages": "0", "autovacuum": "off"}

// crashed is a unit whose server crashes instead of committing it.
type crashed struct {
	*service

	server *pgtest.Own
	xid    uint64
	// others runs when the server is up again, and the unit asks what became of it.
	others func()
}

// lose runs a unit until its transaction is lost in a crash and its id is free for others.
func (c *crashed) lose(t *testing.T, proof unit.Proof) error {
	t.Helper()
	f := &faults{commit: func(*faultyConn, func() error) error {
		c.server.Crash(t)
		c.others()
		return io.ErrUnexpectedEOF
	}}
	return c.manager(nil, c.broken(t, f)).Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		if proof != nil {
			uow.Inside(u).ProvedBy(proof)
		}
		require.NoError(t, note(ctx, u, "x"))
		xid, err := strconv.ParseUint(lines(t, u.DB(), "SELECT pg_current_xact_id()::text")[0], 10, 64)
		require.NoError(t, err)
		c.xid = xid
		return nil
	}, uow.WithoutRetry())
}

func newCrashed(t *testing.T) *crashed {
	t.Helper()
	c := &crashed{server: pgtest.Start(t, lazyLog)}
	c.service = &service{DB: c.server.Open(t), sink: &tableSink{}, logs: &logs{}}
	c.init(t, nil, c.DB.DB)
	c.SetMaxIdleConns(-1) // none is left over from before a crash
	return c
}

// burn lets other transactions take ids up to the lost one, and leaves the last of them open.
func (c *crashed) burn(t *testing.T) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.server.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	for {
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		var xid uint64
		require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_current_xact_id()::text::bigint").Scan(&xid))
		require.LessOrEqual(t, xid, c.xid, "the id was not forgotten by the crash, so nothing is proved")
		if xid == c.xid {
			return tx
		}
		require.NoError(t, tx.Commit(t.Context()))
	}
}

// The server crashes before the transaction is on the disk, and its id becomes that of a transaction that commits.
func TestLostTransactionWhoseIDIsAnothers(t *testing.T) {
	c := newCrashed(t)
	c.others = func() { require.NoError(t, c.burn(t).Commit(t.Context())) }
	err := c.lose(t, nil)
	require.Equal(t, []string{"committed"}, lines(t, c, "SELECT pg_xact_status(?::text::xid8)", strconv.FormatUint(c.xid, 10)))
	require.Empty(t, c.notes(t))
	require.ErrorIs(t, err, uow.ErrCommitUnknown)
	require.ErrorContains(t, err, "recovered from a crash")
}

// The same with another transaction that goes on: the unit must not end it.
func TestInnocentSessionIsNotEnded(t *testing.T) {
	c := newCrashed(t)
	var innocent pgx.Tx
	c.others = func() { innocent = c.burn(t) }
	require.ErrorIs(t, c.lose(t, nil), uow.ErrCommitUnknown)
	require.NoError(t, innocent.Commit(t.Context()))
}

// After a crash a row is what proves a COMMIT: a row that the unit says how to find, or that of an event.
func TestRowProvesACommitAfterACrash(t *testing.T) {
	c := newCrashed(t)
	sink := &findingSink{tableSink: c.sink}
	f := &faults{commit: func(_ *faultyConn, commit func() error) error {
		require.NoError(t, commit())
		c.server.Crash(t)
		return io.ErrUnexpectedEOF
	}}
	pool := c.broken(t, f)
	hooked, err := change(t.Context(), c.manager(nil, pool, sink), newAccount("a", "one"), "x")
	require.NoError(t, err)
	require.True(t, hooked)
	require.Equal(t, []string{"x"}, c.notes(t))

	row := func(ctx context.Context, db bun.IDB, xid string) (found bool, err error) {
		err = db.NewRaw("SELECT EXISTS (SELECT FROM notes WHERE text = 'y' AND xmin::text = ?)", xid).Scan(ctx, &found)
		return found, err
	}
	write := func(proofs ...unit.Proof) error {
		return c.manager(nil, pool).Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			for _, p := range proofs {
				uow.Inside(u).ProvedBy(p)
			}
			return note(ctx, u, "y")
		}, uow.WithoutRetry())
	}
	require.NoError(t, write(row))
	_, err = c.Exec("DELETE FROM notes")
	require.NoError(t, err)
	require.ErrorIs(t, write(), uow.ErrCommitUnknown, "nothing proves it")
	require.Equal(t, []string{"y"}, c.notes(t))
}

// An event whose id, or whose place, may be that of an earlier unit's proves nothing.
func TestEventsThatProveNothing(t *testing.T) {
	c := newCrashed(t)
	for name, option := range map[string]event.AddOption{
		"id":  event.WithID("01890a5d-ac96-774b-bcce-b302099a8057"),
		"key": event.WithDedupKey("k"),
	} {
		t.Run(name, func(t *testing.T) {
			sink := &findingSink{tableSink: c.sink}
			f := &faults{commit: func(*faultyConn, func() error) error {
				c.server.Crash(t)
				return io.ErrUnexpectedEOF
			}}
			err := c.manager(nil, c.broken(t, f), sink).Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
				return u.Add("topic", []byte("x"), option)
			}, uow.WithoutRetry())
			require.ErrorIs(t, err, uow.ErrCommitUnknown)
			require.Zero(t, sink.asked)
		})
	}
}

// findingSink finds each line that it stored.
type findingSink struct {
	*tableSink

	asked int
}

func (s *findingSink) Find(ctx context.Context, db bun.IDB, evs []event.Envelope) (found bool, err error) {
	s.asked++
	err = db.NewRaw("SELECT EXISTS (SELECT FROM sunk WHERE line = ?)", line(evs[0])).Scan(ctx, &found)
	return found, err
}
