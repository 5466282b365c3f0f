package uow_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/linktest"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/unit"
	"github.com/oncebox/oncebox/uow"
)

// batchSink is a sink whose statement leaves with COMMIT.
type batchSink struct {
	*tableSink

	batches int
	queue   func(b *pgsql.Batch)
}

func (s *batchSink) Enqueue(_ context.Context, _ bun.IDB, q *unit.Queue, evs []event.Envelope) error {
	s.batches++
	for i := range evs {
		q.Queue("INSERT INTO sunk (line) VALUES ($1)", line(evs[i]))
	}
	if s.queue != nil {
		s.queue(&q.Batch)
	}
	return nil
}

// pipelined opens a pool whose transactions share round trips, as config.OpenDB does.
func pipelined(t *testing.T, dsn string) *bun.DB {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	pool := sql.OpenDB(pgsql.NewConnector(*cfg))
	t.Cleanup(func() { _ = pool.Close() })
	return bun.NewDB(pool, pgdialect.New())
}

// saver is a service with a table of accounts.
type saver struct {
	*service

	pool  *bun.DB
	batch *batchSink
}

func newSaver(t *testing.T, cfg *uow.Config, pool func(*service) *bun.DB) *saver {
	t.Helper()
	s := &saver{service: newService(t, nil)}
	s.batch = &batchSink{tableSink: s.sink}
	_, err := s.Exec("CREATE TABLE accounts (id text PRIMARY KEY, version bigint NOT NULL)")
	require.NoError(t, err)
	s.pool = pool(s.service)
	s.units = s.manager(cfg, s.pool, s.batch)
	return s
}

// eachPool runs a test on a pool that shares round trips, on a pool that does not, and on a pool behind a transaction-mode pooler.
func eachPool(t *testing.T, test func(t *testing.T, s *saver)) {
	t.Helper()
	t.Run("pipelined", func(t *testing.T) {
		test(t, newSaver(t, nil, func(s *service) *bun.DB { return pipelined(t, s.DSN) }))
	})
	t.Run("plain", func(t *testing.T) {
		test(t, newSaver(t, nil, func(s *service) *bun.DB { return s.DB.DB }))
	})
	t.Run("pooled", func(t *testing.T) {
		test(t, newSaver(t, nil, func(s *service) *bun.DB { return s.DB.Pooled(t).DB }))
	})
}

func (s *saver) save(ctx context.Context, a event.Aggregate) error {
	return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error { return u.Save(ctx, a) }, uow.WithoutRetry())
}

func (s *saver) accounts(t *testing.T) []string {
	t.Helper()
	return lines(t, s, "SELECT id || ' v' || version FROM accounts ORDER BY id")
}

func TestSave(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		a := newAccount("a", "one", "two")
		require.NoError(t, s.save(t.Context(), a))
		require.EqualValues(t, 2, a.Version)
		require.Empty(t, a.RecordedEvents())
		a.Record(changed{"three"})
		require.NoError(t, s.save(t.Context(), a), "the same instance in the next unit")
		require.EqualValues(t, 3, a.Version)
		require.Equal(t, []string{"a v3"}, s.accounts(t))
		require.Equal(t, []string{"account a v1 one", "account a v2 two", "account a v3 three"}, s.sunk(t))
		require.Zero(t, s.pool.Stats().InUse)
	})
}

func TestSaveTwiceInAUnit(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		a := newAccount("a", "one")
		require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			require.NoError(t, u.Save(ctx, a))
			require.Zero(t, a.Version, "not before COMMIT")
			a.Record(changed{"two"})
			return u.Save(ctx, a)
		}))
		require.Equal(t, []string{"a v2"}, s.accounts(t))
		require.EqualValues(t, 2, a.Version)

		err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			a.Record(changed{"three"})
			require.NoError(t, u.Save(ctx, a))
			a.Record(changed{"four"})
			return nil
		})
		require.ErrorContains(t, err, "account a recorded events after it was saved")
		require.Equal(t, []string{"a v2"}, s.accounts(t))
		require.EqualValues(t, 2, a.Version)
	})
}

func TestSaveOfOneAggregateTwiceAtOnce(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		a := newAccount("a", "one")
		for version := range 2 {
			require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error { return u.Save(ctx, a, a) }))
			require.EqualValues(t, version+1, a.Version)
			a.Record(changed{"two"})
		}
		require.Equal(t, []string{"account a v1 one", "account a v2 two"}, s.sunk(t))
	})
}

// Save refuses one of two. A unit that goes on nevertheless must not announce the other one, which was not stored either.
func TestSaveRefusesAllOrNone(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			require.ErrorContains(t, u.Save(ctx, newAccount("a", "one"), newAccount("b")), "account b is new and has recorded nothing")
			return nil
		}))
		require.Empty(t, s.accounts(t))
		require.Empty(t, s.sunk(t))
	})
}

func TestSaveConflict(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		require.NoError(t, s.save(t.Context(), newAccount("a", "one", "two")))
		for name, c := range map[string]struct {
			stale *account
			want  uow.ConflictError
		}{
			"update":    {&account{ID: "a", Version: 1}, uow.ConflictError{Type: "account", ID: "a", Expected: 1, Found: 2}},
			"insert":    {&account{ID: "a"}, uow.ConflictError{Type: "account", ID: "a", Expected: 0, Found: 2}},
			"not there": {&account{ID: "b", Version: 7}, uow.ConflictError{Type: "account", ID: "b", Expected: 7}},
		} {
			t.Run(name, func(t *testing.T) {
				c.stale.Record(changed{"x"})
				before := c.stale.Version
				err := s.save(t.Context(), c.stale)
				var conflict *uow.ConflictError
				require.ErrorAs(t, err, &conflict)
				require.ErrorIs(t, err, uow.ErrConflict)
				require.Equal(t, c.want, *conflict)
				require.Equal(t, before, c.stale.Version)
				require.Equal(t, []string{"a v2"}, s.accounts(t))
				require.Len(t, s.sunk(t), 2)

				// A unit that ignores the error publishes no event of an aggregate that was not stored.
				c.stale = &account{ID: c.stale.ID, Version: before}
				c.stale.Record(changed{"ghost"})
				require.ErrorIs(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
					_ = u.Save(ctx, c.stale)
					return nil
				}), uow.ErrStale)
			})
		}
	})
}

// The second statement breaks the transaction, so nothing can be read in it any more.
func TestSaveConflictThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newSaver(t, nil, func(s *service) *bun.DB { return pipelined(t, s.DSN) })
	_, err := s.Exec("ALTER TABLE accounts ADD CHECK (id <> 'refused')")
	require.NoError(t, err)
	stale := &account{ID: "a", Version: 1}
	stale.Record(changed{"x"})
	err = s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		return u.Save(ctx, stale, newAccount("refused", "opened"))
	}, uow.WithoutRetry())
	var conflict *uow.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.ErrorIs(t, err, uow.ErrConflict)
	require.ErrorContains(t, err, "account a: expected version 1, which is not there, and what is there could not be read: ERROR: current transaction")
	require.NotContains(t, err.Error(), "there is no such row")
}

// Units that save the same aggregates lock their rows in one order, whatever the order of the arguments.
func TestSaveLocksInOneOrder(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		_, err := s.Exec(`CREATE TABLE written (n serial, id text);
			CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO written (id) VALUES (NEW.id); RETURN NEW; END$$;
			CREATE TRIGGER note BEFORE INSERT OR UPDATE ON accounts FOR EACH ROW EXECUTE FUNCTION note()`)
		require.NoError(t, err)
		accounts := map[string]*account{}
		save := func(ids ...string) {
			var of []event.Aggregate
			for _, id := range ids {
				if accounts[id] == nil {
					accounts[id] = newAccount(id)
				}
				accounts[id].Record(changed{"x"})
				of = append(of, accounts[id])
			}
			_, err := s.Exec("TRUNCATE written; TRUNCATE sunk")
			require.NoError(t, err)
			require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error { return u.Save(ctx, of...) }))
		}
		written := func() string {
			return strings.Join(lines(t, s, "SELECT id FROM written ORDER BY n"), " ")
		}
		save("d", "c", "b", "a")
		require.Equal(t, "d c b a", written(), "new ones may refer to each other")
		save("d", "a", "c", "b")
		require.Equal(t, "a b c d", written())
		require.Equal(t, []string{"account d v2 x", "account a v2 x", "account c v2 x", "account b v2 x"}, s.sunk(t))
		save("c", "b", "new", "d", "a")
		require.Equal(t, "b c new a d", written())
	})
}

// A change without an event leaves the version as it is, and is refused all the same if an event came in between.
func TestSaveWithoutAnEvent(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		require.NoError(t, s.save(t.Context(), newAccount("a", "one", "two")))
		require.ErrorIs(t, s.save(t.Context(), &account{ID: "a", Version: 1}), uow.ErrConflict)
		require.NoError(t, s.save(t.Context(), &account{ID: "a", Version: 2}))
		require.NoError(t, s.save(t.Context(), &account{ID: "a", Version: 2}), "of two such changes the later one counts")
		require.Equal(t, []string{"a v2"}, s.accounts(t))
		require.Len(t, s.sunk(t), 2)
	})
}

func TestSaveInASavepoint(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		dropped, kept := newAccount("dropped", "x"), newAccount("kept", "x")
		require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			require.ErrorIs(t, s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
				require.NoError(t, u.Save(ctx, dropped))
				return errRefused
			}), errRefused)
			require.ErrorIs(t, u.Save(ctx, dropped), uow.ErrStale)
			return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error { return u.Save(ctx, kept) })
		}))
		require.Zero(t, dropped.Version)
		require.EqualValues(t, 1, kept.Version)
		require.Equal(t, []string{"kept v1"}, s.accounts(t))
		require.Equal(t, []string{"account kept v1 x"}, s.sunk(t))
	})
}

// COMMIT itself refuses: the constraint is deferred.
func TestSaveRefusedByCommit(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		a := newAccount("a", "one")
		err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			require.NoError(t, note(ctx, u, "x"))
			require.NoError(t, note(ctx, u, "x"))
			return u.Save(ctx, a)
		})
		require.Equal(t, pgerr.UniqueViolation, pgerr.Code(err))
		require.NotErrorIs(t, err, uow.ErrCommitUnknown)
		require.NotContains(t, s.logs.all(), "was lost")
		require.Zero(t, a.Version)
		s.requireNothing(t)
	})
}

// A statement that failed unseen fails the flush, and COMMIT with it.
func TestSaveThenSwallowedError(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			require.NoError(t, u.Save(ctx, newAccount("a", "one")))
			_, err := u.DB().ExecContext(ctx, "CREATE TEMPORARY TABLE counted (n integer CONSTRAINT positive CHECK (n > 0)) ON COMMIT DROP")
			require.NoError(t, err)
			_, err = u.DB().ExecContext(ctx, "INSERT INTO counted VALUES (-1)")
			require.Error(t, err)
			return nil
		})
		want := "25P02" // all that PostgreSQL says
		if strings.HasSuffix(t.Name(), "pipelined") {
			require.ErrorContains(t, err, "an error was not returned: SQLSTATE 23514, constraint positive")
			want = "23514"
		}
		require.Equal(t, want, pgerr.Code(err))
		s.requireNothing(t)
	})
}

func TestSaveThenFlushThatFails(t *testing.T) {
	s := newSaver(t, nil, func(s *service) *bun.DB { return pipelined(t, s.DSN) })
	s.batch.queue = func(b *pgsql.Batch) { b.Queue("SELECT 1/0") }
	require.Equal(t, "22012", pgerr.Code(s.save(t.Context(), newAccount("a", "one"))))
	s.requireNothing(t)
	require.Empty(t, s.accounts(t))
	s.batch.queue = nil
	require.NoError(t, s.save(t.Context(), newAccount("a", "one")), "the connection is as good as before")
	require.Equal(t, 2, s.batch.batches)
}

// The caller gives up while the flush waits for a lock: the unit ends, and nothing is stored.
func TestSaveCancelledWhileTheFlushWaits(t *testing.T) {
	s := newSaver(t, nil, func(s *service) *bun.DB { return pipelined(t, s.DSN) })
	held, err := s.DB.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = held.Exec("SELECT pg_advisory_xact_lock(hashtext(current_schema()))")
	require.NoError(t, err)
	s.batch.queue = func(b *pgsql.Batch) { b.Queue("SELECT pg_advisory_xact_lock(hashtext(current_schema()))") }

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.save(ctx, newAccount("a", "one")) }()
	await.True(t, func() bool {
		return len(lines(t, s, `SELECT pid::text FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND objid = hashtext(current_schema())::bigint & 4294967295`)) == 1
	}, "it waits for the lock")
	cancel()
	err = <-done
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, uow.ErrCommitUnknown)
	require.NoError(t, held.Rollback())
	s.requireNothing(t)
	require.Empty(t, s.accounts(t))
}

// The network is cut anywhere, also between the INSERT and COMMIT, whose answers come together.
func TestSaveNetworkCutAnywhere(t *testing.T) {
	var n *network
	s := newSaver(t, &uow.Config{CommitTimeout: 10 * time.Second}, func(s *service) *bun.DB {
		n = s.network(t)
		return pipelined(t, n.link.URL)
	})
	n.pool = s.pool
	n.mendWhenAsked(s.service)
	committed, failed := 0, 0
	for seed := range nightly.Seeds(t, 10_000, 10_000) {
		if committed+failed >= nightly.N(120, 2000) && s.lost() > 0 {
			break
		}
		rng := rand.New(rand.NewPCG(seed, 2))
		n.link.Mend()
		await.True(t, func() bool { return s.pool.PingContext(t.Context()) == nil }, "the network is mended")
		id := fmt.Sprint("seed ", seed)
		direction, bytes := linktest.ToServer, rng.IntN(1200)
		if rng.IntN(2) == 0 {
			direction, bytes = linktest.ToClient, rng.IntN(900)
		}
		n.link.Limit(direction, bytes)
		a := newAccount(id, "one")
		err := s.save(t.Context(), a)
		n.link.Mend()
		require.NotErrorIs(t, err, uow.ErrCommitUnknown, id)
		stored := append(lines(t, s, "SELECT id FROM accounts WHERE id = ?", id),
			lines(t, s, "SELECT line FROM sunk WHERE line = ?", "account "+id+" v1 one")...)
		if err == nil {
			committed++
			require.Len(t, stored, 2, id)
			require.EqualValues(t, 1, a.Version)
		} else {
			failed++
			require.Empty(t, stored, "%s: %v", id, err)
			require.Zero(t, a.Version)
		}
		require.Zero(t, s.pool.Stats().InUse, id)
	}
	t.Logf("%d were committed and %d were not; %d answers were lost", committed, failed, s.lost())
	require.NotZero(t, s.lost(), "no answer to COMMIT was lost")
	require.NotZero(t, committed)
	require.NotZero(t, failed)
}

// valued is a Valuer of a program.
type valued struct{ text string }

func (v valued) Value() (driver.Value, error) { return "it's " + v.text, nil }

// every has a column of every kind.
type every struct {
	bun.BaseModel  `bun:"table:every"`
	event.Recorder `bun:"-"`

	ID       string            `bun:",pk"`
	Held     int               `bun:"revision"            uow:"version"`
	Text     string            `bun:"text"`
	Document map[string]string `bun:"document,type:jsonb"`
	List     []string          `bun:"list,array"`
	Numbers  []int64           `bun:"numbers,array"`
	Bytes    []byte            `bun:"bytes"`
	Zero     string            `bun:"zero,nullzero"`
	At       time.Time         `bun:"at"`
	Never    *time.Time        `bun:"never"`
	Pointer  *int64            `bun:"pointer"`
	Valuer   valued            `bun:"valuer"`
	Truth    bool              `bun:"truth"`
	Float    float64           `bun:"float"`
	Skipped  string            `bun:"skipped,skipupdate"`
}

func (*every) AggregateType() string     { return "every" }
func (e *every) AggregateID() string     { return e.ID }
func (e *every) AggregateVersion() int64 { return int64(e.Held) }

// The stored values must not depend on whether bun or the unit wrote the statement.
func TestSaveEveryKindOfValue(t *testing.T) {
	var rows []string
	eachPool(t, func(t *testing.T, s *saver) {
		_, err := s.Exec(`CREATE TABLE every (id text PRIMARY KEY, revision bigint, text text, document jsonb, list text[], numbers bigint[],
			bytes bytea, zero text, at timestamptz, never timestamptz, pointer bigint, valuer text, truth boolean, float float8, skipped text)`)
		require.NoError(t, err)
		seven := int64(7)
		e := &every{
			ID: "o'id", Text: `'' \ ä "`, Document: map[string]string{`k'"`: `v'\`}, List: []string{`a'`, `b"\,`}, Numbers: []int64{1, -2},
			Bytes: []byte{0, 1, '\''}, Zero: "z", At: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), Never: &time.Time{}, Pointer: &seven,
			Valuer: valued{"mine"}, Truth: true, Float: -1.5, Skipped: "first",
		}
		for range 2 { // INSERT, then UPDATE
			e.Record(changed{"x"})
			require.NoError(t, s.save(t.Context(), e))
			rows = append(rows, lines(t, s, "SELECT every::text FROM every")...)
			e.Text, e.Skipped, e.Zero, e.Never, e.Pointer, e.List, e.Bytes = "new", "second", "", nil, nil, nil, nil
		}
		require.Equal(t, 2, e.Held)
	})
	require.Len(t, rows, 6)
	require.Equal(t, rows[:2], rows[2:4])
	require.Equal(t, rows[:2], rows[4:])
	require.Contains(t, rows[1], "first")
}

// unversioned has no version.
type unversioned struct {
	bun.BaseModel  `bun:"table:notes"`
	event.Recorder `bun:"-"`

	Pos  int64 `bun:",pk"`
	Text string
}

func (*unversioned) AggregateType() string   { return "note" }
func (*unversioned) AggregateID() string     { return "1" }
func (*unversioned) AggregateVersion() int64 { return 0 }

func TestSaveWithoutAVersion(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		_, err := s.Exec("ALTER TABLE notes ADD PRIMARY KEY (pos)")
		require.NoError(t, err)
		n := &unversioned{Pos: 1, Text: "one"}
		require.NoError(t, s.save(t.Context(), n))
		n.Text = "two"
		n.Record(changed{"x"})
		require.NoError(t, s.save(t.Context(), n))
		require.Equal(t, []string{"two"}, s.notes(t))
	})
}

func TestSaveRefusesWhatItCannotProtect(t *testing.T) {
	eachPool(t, func(t *testing.T, s *saver) {
		require.ErrorContains(t, s.save(t.Context(), newAccount("a")), "account a is new and has recorded nothing")
		require.ErrorContains(t, s.save(t.Context(), (*account)(nil)), "not a pointer to an aggregate")
		require.ErrorContains(t, s.save(t.Context(), &keyless{}), "has no primary key")
		require.ErrorContains(t, s.save(t.Context(), &lying{ID: "a", Version: 3}), "AggregateVersion is 1, but the field Version holds 3")
		require.ErrorContains(t, s.save(t.Context(), &untold{ID: "a"}), "has version 1, but its model has no column")
		require.ErrorContains(t, s.save(t.Context(), &unsigned{ID: "a"}), "unsigned.Version is the version and must be a signed integer, but is a uint64")
		require.ErrorContains(t, s.save(t.Context(), new(scalar)), "scalar is not a struct, so it cannot be a bun model")
		require.Empty(t, s.accounts(t))
	})
}

type keyless struct {
	event.Recorder `bun:"-"`

	Version int64
}

func (*keyless) AggregateType() string   { return "keyless" }
func (*keyless) AggregateID() string     { return "1" }
func (*keyless) AggregateVersion() int64 { return 1 }

type lying struct {
	event.Recorder `bun:"-"`

	ID      string `bun:",pk"`
	Version int64
}

func (*lying) AggregateType() string   { return "lying" }
func (*lying) AggregateID() string     { return "1" }
func (*lying) AggregateVersion() int64 { return 1 }

type untold struct {
	event.Recorder `bun:"-"`

	ID string `bun:",pk"`
}

func (*untold) AggregateType() string   { return "untold" }
func (*untold) AggregateID() string     { return "1" }
func (*untold) AggregateVersion() int64 { return 1 }

type unsigned struct {
	event.Recorder `bun:"-"`

	ID      string `bun:",pk"`
	Version uint64
}

func (*unsigned) AggregateType() string   { return "unsigned" }
func (*unsigned) AggregateID() string     { return "1" }
func (*unsigned) AggregateVersion() int64 { return 1 }

type scalar int

func (*scalar) AggregateType() string            { return "scalar" }
func (*scalar) AggregateID() string              { return "1" }
func (*scalar) AggregateVersion() int64          { return 1 }
func (*scalar) RecordedEvents() []event.Recorded { return nil }
func (*scalar) ClearEvents()                     {}
