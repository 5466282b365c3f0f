package tenants_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/outboxtest"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	outboxtenants "github.com/oncebox/oncebox/outbox/tenants"
)

// lanes returns the lowest and the highest lane of a tenant's rows.
func (f *fixture) lanesOf(tenant string) (low, high int) {
	f.T.Helper()
	require.NoError(f.T, f.DB.QueryRow("SELECT coalesce(min(lane), -1), coalesce(max(lane), -1) FROM outbox WHERE tenant_id = ?", tenant).Scan(&low, &high))
	return low, high
}

// publishAll makes it look as if all was published.
func (f *fixture) publishAll() {
	f.T.Helper()
	_, err := f.DB.Exec("DELETE FROM outbox")
	require.NoError(f.T, err)
}

func (f *fixture) flush(tenant string, n int) {
	f.T.Helper()
	evs := make([]event.Envelope, n)
	for i := range evs {
		evs[i] = event.Envelope{
			ID: uuid.NewString(), TenantID: tenant, AggregateType: "order", AggregateID: fmt.Sprint("k", i), AggregateVersion: 1, Type: "e",
			Topic: "order", Source: "test", OccurredAt: time.Now(), ContentType: "text/plain",
		}
	}
	f.Commit(func(tx bun.Tx) { require.NoError(f.T, f.Flush(f.T.Context(), tx, evs)) })
}

func TestTenantsAreMoved(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, nil)
	outboxtest.Move(t, f.Store, "big", 2)
	for _, n := range []int{1, 3, 200} { // each a statement of its own
		f.flush("big", n)
		f.flush("small", n)
	}
	low, high := f.lanesOf("big")
	require.True(t, low >= 128 && high < 192, "%d to %d", low, high)
	low, high = f.lanesOf("small")
	require.True(t, low >= 0 && high < 64, "%d to %d", low, high)

	leases, err := lanedb.Of(f.Handle()).Leases.Claim(ctx, "other", 2, 100, time.Minute)
	require.NoError(t, err)
	require.Len(t, leases, 64)
	all, err := lanedb.Of(f.Handle()).Leases.Heartbeat(ctx, "me", 0, time.Minute)
	require.NoError(t, err)
	require.Equal(t, []int64{2}, all.Unserved)
	_, err = lanedb.Of(f.Handle()).Leases.Heartbeat(ctx, "other", 2, time.Minute)
	require.NoError(t, err)
	all, err = lanedb.Of(f.Handle()).Leases.Heartbeat(ctx, "me", 0, time.Minute)
	require.NoError(t, err)
	require.Empty(t, all.Unserved)

	tenants, err := f.Tenants().List(ctx)
	require.NoError(t, err)
	require.Len(t, tenants, 1)
	require.Equal(t, "big 2", fmt.Sprint(tenants[0].Tenant, " ", tenants[0].Group))

	f.publishAll()
	outboxtest.Move(t, f.Store, "big", 0)
	f.flush("big", 100)
	low, high = f.lanesOf("big")
	require.True(t, low >= 0 && high < 64, "%d to %d", low, high)
	tenants, err = f.Tenants().List(ctx)
	require.NoError(t, err)
	require.Empty(t, tenants)

	audit, err := f.Audit(ctx, operator.AuditFilter{}, nil, 0)
	require.NoError(t, err)
	require.Len(t, audit, 2)
	first := audit[0]
	require.Equal(t, "ann move big to group 0: tried it", strings.Join([]string{first.Actor, string(first.Action), first.TenantID, first.Reason}, " "))
}

func TestMoveIsRefused(t *testing.T) {
	f := newFixture(t, nil)
	for name, c := range map[string]struct {
		tenant string
		group  int16
		by     operator.By
	}{
		"give a group from 0 to 510": {"big", 511, ann},
		"tenant is empty":            {"", 1, ann},
		"By.Actor is empty":          {"big", 1, operator.By{}},
	} {
		require.ErrorContains(t, f.Tenants().Move(t.Context(), c.tenant, c.group, c.by), name)
	}
	outboxtest.Move(t, f.Store, "big", 510)
	f.flush("big", 100)
}

// Later commits would overtake whatever of the tenant is unpublished.
func TestBusyTenantIsNotMoved(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, nil)
	refused := func(why string) {
		t.Helper()
		await.True(t, func() bool { // a machine that stands still is a reason of its own
			err := f.Tenants().Move(ctx, "default", 1, ann)
			require.ErrorIs(t, err, outboxtenants.ErrBusy)
			return strings.Contains(err.Error(), why)
		}, "the move is refused, because %s", why)
	}
	tx, err := f.DB.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = f.Add(ctx, tx, "order", []byte("x"), event.WithAggregate("order", "a", 1), event.WithType("a1"))
	require.NoError(t, err)
	refused("transactions are under way") // the flush that is not committed
	require.NoError(t, tx.Commit())
	refused("1 still wait")
	rows := f.Fetch()
	lease := f.Leases[rows[0].Lane]
	require.NoError(t, lanedb.Of(f.Handle()).Moves.Hold(ctx, lease, []lanedb.Outcome{{Seq: rows[0].Sequence, Verdict: lanedb.Refused}}))
	refused("1 still wait")
	require.NoError(t, f.GiveUp(lease, f.Change(lease.Lane), rows[0].Sequence, "no"))
	refused("1 dead letters")
	require.NoError(t, f.Dead().Discard(ctx, rows[0].ID, ann))
	outboxtest.Move(t, f.Store, "default", 1)
}

// A flush that was waiting for the move has a snapshot from before it.
func TestFlushThatWaitedForTheMoveSeesIt(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, nil)
	outboxtest.Move(t, f.Store, "another", 1) // so that flushes ask at all
	tx, err := f.DB.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	_, err = tx.Exec("SELECT pg_advisory_xact_lock(lock_space, b) FROM oncebox_settings, generate_series(0, ?) b", outboxdb.LockBuckets-1)
	require.NoError(t, err)
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		f.flush("big", 1)
	}()
	await.True(t, func() bool {
		var n int
		err := f.DB.QueryRow(`SELECT count(*) FROM pg_locks, oncebox_settings
			WHERE locktype = 'advisory' AND NOT granted AND classid = (lock_space::bigint & 4294967295)::oid`).Scan(&n)
		return err == nil && n == 1
	}, "the flush waits for the move")
	_, err = tx.Exec("INSERT INTO outbox_tenant VALUES ('big', 1)")
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	<-flushed
	low, _ := f.lanesOf("big")
	require.GreaterOrEqual(t, low, 64)
}

// A transaction's snapshot may be older than the move, and stays so where the isolation is higher.
func TestTransactionOlderThanTheMove(t *testing.T) {
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run(level.String(), func(t *testing.T) {
			ctx := t.Context()
			f := newFixture(t, nil)
			err := f.DB.RunInTx(ctx, &sql.TxOptions{Isolation: level}, func(ctx context.Context, tx bun.Tx) error {
				var n int
				require.NoError(t, tx.QueryRow("SELECT count(*) FROM outbox_tenant").Scan(&n))
				outboxtest.Move(t, f.Store, "default", 1)
				_, err := f.Add(ctx, tx, "order", []byte("x"), event.WithAggregate("order", "a", 1), event.WithType("a1"))
				return err
			})
			if level != sql.LevelReadCommitted {
				require.Equal(t, "40001", pgerr.Code(err), "%v", err)
				return
			}
			require.NoError(t, err)
			low, _ := f.lanesOf("default")
			require.GreaterOrEqual(t, low, 64)
		})
	}
}

// A tenant can be seen no later than its first event, by whatever statement that was stored, and only if it was.
func TestTenantsAreEnteredWithTheirFirstEvent(t *testing.T) {
	ctx := t.Context()
	f := newFixture(t, nil)
	others := func(than ...string) bool {
		t.Helper()
		yes, err := lanedb.Of(f.Handle()).Leases.OtherTenants(ctx, than)
		require.NoError(t, err)
		return yes
	}
	require.False(t, others())
	tx, err := f.DB.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = f.Add(ctx, tx, "order", []byte("x"), event.WithTenantID("gone"), event.WithType("e"))
	require.NoError(t, err)
	require.False(t, others())
	require.NoError(t, tx.Rollback())
	require.False(t, others())

	f.flush("a", 1)
	require.True(t, others())
	require.False(t, others("a"))
	f.flush("b", 200)
	require.True(t, others("a"))
	require.False(t, others("a", "b"))
	f.Committed(ctx, []event.Envelope{{TenantID: "a"}, {TenantID: "b"}})
	_, err = f.DB.Exec("DELETE FROM outbox_tenant") // what nobody ever does shows that it is not looked up again
	require.NoError(t, err)
	f.flush("a", 1)
	require.False(t, others())
	f.flush("c", 1)
	require.False(t, others("c"))
}

// A role that may not see whether tenants have moved stores nothing. PostgreSQL up to 17 would refuse it anyway; 18 would
// answer that none has.
func TestRoleThatCannotSeeMovesStoresNothing(t *testing.T) {
	f := newFixture(t, nil)
	f.flush("acme", 1)
	f.publishAll()
	outboxtest.Move(t, f.Store, "acme", 1)
	role := "app_" + f.DB.Schema
	f.Exec("CREATE ROLE " + role)
	t.Cleanup(func() {
		_, err := f.DB.Exec("DROP OWNED BY " + role + "; DROP ROLE " + role)
		require.NoError(t, err)
	})
	f.Exec("GRANT USAGE ON SCHEMA " + f.DB.Schema + " TO " + role)
	f.Exec("GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA " + f.DB.Schema + " TO " + role)
	f.Exec("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA " + f.DB.Schema + " TO " + role)
	f.Exec("GRANT USAGE ON SEQUENCE outbox_seq TO " + role)
	add := func() error {
		tx, err := f.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }() // of no effect after the commit
		_, err = tx.Exec("SET LOCAL ROLE " + role)
		require.NoError(t, err)
		store := outbox.NewStore(f.DB.DB, &outbox.Config{Source: "test"})
		if _, err := store.Add(t.Context(), tx, "order", []byte("x"), event.WithTenantID("acme")); err != nil {
			return err
		}
		return tx.Commit()
	}
	require.ErrorContains(t, add(), "GRANT USAGE ON SEQUENCE outbox_moves")
	require.Zero(t, f.Count("outbox"))
	f.Exec("GRANT USAGE ON SEQUENCE outbox_moves TO " + role)
	require.NoError(t, add())
	require.Equal(t, 1, f.Count("outbox WHERE lane >= 64"), "in the tenant's group")
}

// A service whose tenants are its customers has ever more of them. It is enough to know that there are many.
func TestFurtherTenantsAreNotEntered(t *testing.T) {
	f := newFixture(t, nil)
	entered := func() (n int) {
		require.NoError(t, f.DB.QueryRow("SELECT count(*) FROM outbox_tenant").Scan(&n))
		return n
	}
	_, err := f.DB.Exec("INSERT INTO outbox_tenant (tenant_id) SELECT 't' || n FROM generate_series(1, 999) n")
	require.NoError(t, err)
	f.flush("the last one", 1)
	require.Equal(t, 1000, entered())
	f.flush("another", 1)
	f.flush("and more", 200)
	require.Equal(t, 1000, entered())
	others, err := lanedb.Of(f.Handle()).Leases.OtherTenants(t.Context(), []string{"t1"})
	require.NoError(t, err)
	require.True(t, others)
	var all []string
	require.NoError(t, f.DB.NewRaw("SELECT tenant_id FROM outbox_tenant").Scan(t.Context(), &all))
	others, err = lanedb.Of(f.Handle()).Leases.OtherTenants(t.Context(), all)
	require.NoError(t, err)
	require.True(t, others, "it is not known which they are")
	outboxtest.Move(t, f.Store, "moved", 1)
	require.Equal(t, 1001, entered(), "it has a row whatever their number")
}

// The first transaction of a tenant stays open. Transactions of the tenant's other keys wait for nothing, in whatever language they are written.
func TestFirstTransactionOfATenantHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	first, err := f.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = first.Rollback() }()
	_, err = f.Add(event.WithTenant(t.Context(), "new"), first, "order", []byte("x"), event.WithAggregate("order", "first", 1), event.WithType("e"))
	require.NoError(t, err)

	another := outbox.NewStore(f.DB.Another(t), &outbox.Config{Source: "test"})
	for name, add := range map[string]func(ctx context.Context, tx bun.Tx) error{
		"flush": func(ctx context.Context, tx bun.Tx) error {
			_, err := another.Add(event.WithTenant(ctx, "new"), tx, "order", []byte("x"), event.WithAggregate("order", "second", 1), event.WithType("e"))
			return err
		},
		"function": func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.ExecContext(ctx, `SELECT oncebox_add('order', '{}', 'e', aggregate_type => 'order', aggregate_id => 'third', tenant_id => 'new',
				source => 'test')`)
			return err
		},
	} {
		err := f.DB.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.ExecContext(ctx, "SET LOCAL lock_timeout = '100 ms'"); err != nil {
				return err
			}
			return add(ctx, tx)
		})
		require.NoError(t, err, name)
	}
	require.NoError(t, first.Rollback())
	require.Zero(t, f.Count("outbox_tenant WHERE tenant_id = 'new'"), "they left it to the first one")
	_, err = pgtest.Add(event.WithTenant(t.Context(), "new"), f.DB.DB, outbox.NewStore(f.DB.DB, &outbox.Config{Source: "test"}), "order", []byte("x"),
		event.WithAggregate("order", "fourth", 1), event.WithType("e"))
	require.NoError(t, err)
	require.Equal(t, 1, f.Count("outbox_tenant WHERE tenant_id = 'new'"), "the next one enters it")
}

// Some keys have to share a lock. Of 400 others few wait for a transaction that has 100.
func TestFewKeysWaitForAnOpenTransactionOfOthers(t *testing.T) {
	t.Parallel()
	held := map[uint64]bool{}
	for n := range 100 {
		held[outboxdb.LaneHash(fmt.Sprintf("default|order|held%d", n))>>32%outboxdb.LockBuckets] = true
	}
	waiting := 0
	for n := range 400 {
		if held[outboxdb.LaneHash(fmt.Sprintf("default|order|other%d", n))>>32%outboxdb.LockBuckets] {
			waiting++
		}
	}
	require.Less(t, waiting, 20)
}
