package leader

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// reader reads how often it has read.
func reader(t *testing.T, db bun.IDB, interval time.Duration) (*Reader[int64], *atomic.Int64) {
	t.Helper()
	reads := &atomic.Int64{}
	return &Reader[int64]{
		Name: "test", SQL: pgsql.New("", false), DB: db, Interval: interval, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Read: func(context.Context) (int64, error) { return reads.Add(1), nil },
	}, reads
}

func run(t *testing.T, r *Reader[int64]) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

func shows(r *Reader[int64]) bool {
	_, ok := r.Latest()
	return ok
}

func TestOneReadsAndAnotherTakesOver(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	const interval = 50 * time.Millisecond
	a, _ := reader(t, db.DB, interval)
	b, reads := reader(t, db.DB, interval)
	a.lease, b.lease = time.Hour, time.Hour // a leader that stops says so
	a.within = time.Hour                    // a leader that cannot read would resign
	stop := run(t, a)
	await.True(t, func() bool { return shows(a) }, "the first one to read")
	run(t, b)
	await.True(t, func() bool {
		n, ok := a.Latest()
		return ok && n > 10
	}, "it to go on")
	require.Zero(t, reads.Load())
	require.False(t, shows(b))
	stop()
	require.False(t, shows(a), "it shows nothing any more")
	await.True(t, func() bool { return shows(b) }, "the other one to read")
}

// A leader that hangs, or is cut off from the database, stops to show what it read before another one begins.
func TestCutOffLeaderShowsNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	a, _ := reader(t, db.DB, 50*time.Millisecond)
	b, _ := reader(t, db.DB, 50*time.Millisecond)
	a.lease, b.lease = time.Second, time.Second
	hang := make(chan struct{})
	read := a.Read
	a.Read = func(ctx context.Context) (int64, error) {
		n, err := read(ctx)
		if n > 1 {
			<-hang
		}
		return n, err
	}
	run(t, a)
	defer close(hang)
	await.True(t, func() bool { return shows(a) }, "the first one to read")
	run(t, b)
	await.True(t, func() bool { return shows(b) }, "the other one to take over")
	require.False(t, shows(a))
}

// A reading may take longer than the interval, and nobody else leads meanwhile.
func TestReadingThatIsLongerThanTheInterval(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	const interval = 50 * time.Millisecond
	r, _ := reader(t, db.DB, interval)
	var has, leads time.Duration
	r.Read = func(ctx context.Context) (int64, error) {
		until, _ := ctx.Deadline()
		has = time.Until(until)
		var seconds float64
		err := db.NewRaw("SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM oncebox_lease WHERE task = 'test'").Scan(ctx, &seconds)
		leads = time.Duration(seconds * float64(time.Second))
		return 1, err
	}
	require.NoError(t, r.round(t.Context(), "00000000-0000-0000-0000-00000000000a", interval))
	require.Greater(t, has, 20*interval)
	require.Greater(t, leads, has)
}

// A leader that cannot read lets another one try, and shows nothing from then on.
func TestLeaderThatCannotRead(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	a, _ := reader(t, db.DB, 50*time.Millisecond)
	var fails atomic.Bool
	read := a.Read
	a.Read = func(ctx context.Context) (int64, error) {
		if fails.Load() {
			return 0, errors.New("no")
		}
		return read(ctx)
	}
	run(t, a)
	await.True(t, func() bool { return shows(a) }, "a reading")
	fails.Store(true)
	await.True(t, func() bool { return !shows(a) }, "the reading to end")
	b, _ := reader(t, db.DB, 50*time.Millisecond)
	stop := run(t, b)
	await.True(t, func() bool { return shows(b) }, "another one to read")
	stop()
	fails.Store(false)
	await.True(t, func() bool { return shows(a) }, "it to read again")
}

func TestStatementOfALeaderThatIsNotNeeded(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	sql := pgsql.New("", false)
	const a, b = "00000000-0000-0000-0000-00000000000a", "00000000-0000-0000-0000-00000000000b"
	for i, step := range []struct {
		owner string
		ttl   time.Duration
		led   int64
	}{{a, time.Hour, 1}, {b, time.Hour, 0}, {a, -time.Hour, 1}, {b, time.Hour, 1}, {a, time.Hour, 0}} {
		led, err := sql.Exec(t.Context(), db.DB, lead, "test", step.owner, step.ttl)
		require.NoError(t, err)
		require.Equal(t, step.led, led, i)
	}
	_, err := sql.Exec(t.Context(), db.DB, resign, "test", a)
	require.NoError(t, err)
	led, err := sql.Exec(t.Context(), db.DB, lead, "test", a, time.Hour)
	require.NoError(t, err)
	require.Zero(t, led, "nobody resigns for another one")
}

// A lease that a clock gave which went back since keeps nobody from leading.
func TestLeaseOfAClockThatWentBackIsTaken(t *testing.T) {
	t.Parallel()
	db := pgtest.Migrated(t)
	_, err := db.Exec(`INSERT INTO oncebox_lease (task, owner, lease_until) VALUES ('test', gen_random_uuid(), clock_timestamp() + interval '1 day')`)
	require.NoError(t, err)
	r, _ := reader(t, db.DB, 50*time.Millisecond)
	r.lease, r.within = time.Minute, time.Hour
	run(t, r)
	await.True(t, func() bool { return shows(r) }, "another one to lead")
}
