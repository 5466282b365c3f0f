package upkeep_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/upkeep"
	"github.com/oncebox/oncebox/telemetry"
)

// today is the child of this day.
func (f *fixture) children() int {
	f.T.Helper()
	return f.Count(`pg_inherits WHERE inhparent = 'outbox_sent'::regclass
		AND inhrelid::regclass::text LIKE 'outbox_sent_20%' AND inhrelid::regclass::text < 'outbox_sent_2026'`)
}

func TestExpiredDaysAreArchivedAndDropped(t *testing.T) {
	seen := map[string]int{}
	f := newFixture(t, &outbox.Config{BeforeDrop: func(ctx context.Context, p outbox.Partition) error {
		var ids []string
		if err := p.Select().Column("id").Scan(ctx, &ids); err != nil {
			return err
		}
		seen[p.Day.Format(time.RFC3339)+" "+p.Name[strings.Index(p.Name, ".")+1:]] = len(ids)
		return nil
	}})
	f.Child("2020-01-02")
	f.PublishedOn("2020-01-02", 3)
	f.PublishedOn("2020-01-03", 4) // no child: they are in the DEFAULT one
	f.PublishedOn("2020-01-04", 5)
	today := time.Now().UTC().Format(time.DateOnly)
	f.PublishedOn(today, 6)
	require.NoError(t, f.Clean(t.Context()))
	require.Equal(t, map[string]int{
		"2020-01-02T00:00:00Z outbox_sent_20200102": 3,
		"2020-01-03T00:00:00Z outbox_sent_default":  4,
		"2020-01-04T00:00:00Z outbox_sent_default":  5,
	}, seen)
	require.Zero(t, f.children())
	require.Equal(t, 6, f.Count("outbox_sent"), "today stays")
	clear(seen)
	require.NoError(t, f.Clean(t.Context()))
	require.Empty(t, seen)
}

func TestDayStaysUntilItIsArchived(t *testing.T) {
	var log bytes.Buffer
	reader := sdkmetric.NewManualReader()
	full := errors.New("the archive is full")
	failing := map[string]bool{"2020-01-02": true, "2020-01-04": true}
	var calls []string
	f := newFixture(t, &outbox.Config{
		Telemetry: telemetry.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))},
		BeforeDrop: func(_ context.Context, p outbox.Partition) error {
			day := p.Day.Format(time.DateOnly)
			calls = append(calls, day)
			if failing[day] {
				return full
			}
			return nil
		},
	})
	f.Child("2020-01-02")
	f.Child("2020-01-03")
	f.PublishedOn("2020-01-02", 1)
	f.PublishedOn("2020-01-03", 1)
	f.PublishedOn("2020-01-04", 1)
	f.PublishedOn("2020-01-05", 1)
	require.NoError(t, f.Clean(t.Context()), "a cleaner that fails would come back at once")
	require.Equal(t, []string{"2020-01-02", "2020-01-03", "2020-01-04"}, calls, "the day after a failed one goes on, but not within the DEFAULT child")
	require.Equal(t, 3, f.Count("outbox_sent"))
	require.Equal(t, 1, f.children())
	require.Equal(t, 2, strings.Count(log.String(), "BeforeDrop returned an error"))
	require.Contains(t, log.String(), "the archive is full")
	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &got))
	require.Equal(t, "oncebox.outbox.partitions_kept", got.ScopeMetrics[0].Metrics[0].Name)
	sum, ok := got.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64])
	require.True(t, ok)
	require.EqualValues(t, 2, sum.DataPoints[0].Value)

	err := f.Upkeep().DropExpired(t.Context())
	require.ErrorIs(t, err, full)
	require.ErrorContains(t, err, "outbox_sent_20200102, 2020-01-02")
	clear(failing)
	require.NoError(t, f.Upkeep().DropExpired(t.Context()))
	require.Zero(t, f.Count("outbox_sent"))
	require.Zero(t, f.children())
}

// An archive in the same database is written if and only if the day is dropped.
func TestArchiveCommitsWithTheDrop(t *testing.T) {
	var fail error
	f := newFixture(t, &outbox.Config{BeforeDrop: func(ctx context.Context, p outbox.Partition) error {
		_, err := p.DB.NewInsert().Table("archive").Column("id", "payload").
			TableExpr("(?) AS day", p.Select().Column("id", "payload")).Exec(ctx)
		return errors.Join(err, fail)
	}})
	f.Exec("CREATE TABLE archive (id uuid PRIMARY KEY, payload bytea)")
	f.Child("2020-01-02")
	f.PublishedOn("2020-01-02", 3)
	f.PublishedOn("2020-01-03", 2)
	fail = errors.New("no")
	require.ErrorIs(t, f.Upkeep().DropExpired(t.Context()), fail)
	require.Zero(t, f.Count("archive"))
	fail = nil
	require.NoError(t, f.Upkeep().DropExpired(t.Context()))
	require.Equal(t, 5, f.Count("archive"))
	require.Zero(t, f.Count("outbox_sent"))
}

// An error of SQL that BeforeDrop does not report keeps the day all the same.
func TestSwallowedErrorKeepsTheDay(t *testing.T) {
	f := newFixture(t, &outbox.Config{BeforeDrop: func(ctx context.Context, p outbox.Partition) error {
		_, _ = p.DB.ExecContext(ctx, "SELECT 1 / 0")
		return nil
	}})
	f.Child("2020-01-02")
	f.PublishedOn("2020-01-02", 1)
	require.Error(t, f.Clean(t.Context()))
	require.Equal(t, 1, f.children())
}

func TestOneProcessAtATimeArchives(t *testing.T) {
	entered, leave := make(chan string), make(chan struct{})
	f := newFixture(t, &outbox.Config{BeforeDrop: func(_ context.Context, p outbox.Partition) error {
		entered <- p.Name
		<-leave
		return nil
	}})
	f.Child("2020-01-02")
	f.PublishedOn("2020-01-02", 1)
	f.PublishedOn("2020-01-03", 1)
	other := outbox.NewStore(f.DB.Another(t), &outbox.Config{BeforeDrop: func(context.Context, outbox.Partition) error {
		return errors.New("not its turn")
	}})
	done := make(chan error, 1)
	go func() { done <- f.Clean(context.WithoutCancel(t.Context())) }()
	for _, what := range []string{"outbox_sent_20200102", "outbox_sent_default"} {
		require.Contains(t, <-entered, what)
		err := other.Upkeep().DropExpired(t.Context())
		leave <- struct{}{}
		require.NoError(t, err, what)
	}
	require.NoError(t, <-done)
	require.NoError(t, other.Upkeep().DropExpired(t.Context()), "there is nothing left")
	require.Zero(t, f.Count("outbox_sent"))
}

// Another process has dropped the day since this one looked.
func TestDayThatIsGoneIsNotArchived(t *testing.T) {
	f := newFixture(t, &outbox.Config{BeforeDrop: func(context.Context, outbox.Partition) error { return errors.New("called") }})
	day := time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC)
	require.NoError(t, f.Upkeep().DropOne(t.Context(), outbox.Partition{Name: f.DB.Schema + ".outbox_sent_20200102", Day: day}))
	f.Child("2020-01-02")
	f.PublishedOn("2020-01-02", 1)
	require.ErrorContains(t, f.Upkeep().DropOne(t.Context(), outbox.Partition{Name: f.DB.Schema + ".outbox_sent_20200102", Day: day}), "called")
}

// Somebody reads the old day. The drop waits shortly, again and again, and what was archived stays archived.
func TestBusyDayIsNotArchivedTwice(t *testing.T) {
	calls := 0
	f := newFixture(t, &outbox.Config{BeforeDrop: func(ctx context.Context, p outbox.Partition) error {
		calls++
		_, err := p.DB.ExecContext(ctx, "INSERT INTO archive VALUES (1)")
		return err
	}})
	f.Exec("CREATE TABLE archive (n int)")
	f.Child("2020-01-02")
	f.PublishedOn("2020-01-02", 1)
	dropped := func() bool {
		calls = 0
		reader, err := f.DB.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer reader.Rollback()
		_, err = reader.Exec("SELECT FROM outbox_sent_20200102")
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- f.Upkeep().DropExpired(t.Context()) }()
		// The first try is over when its transaction is idle in between, after a savepoint was rolled back.
		await.True(t, func() bool {
			return len(done) > 0 || f.Count(`pg_stat_activity WHERE state = 'idle in transaction' AND query ILIKE 'ROLLBACK TO SAVEPOINT%'
				AND pid IN (SELECT pid FROM pg_locks WHERE relation = 'archive'::regclass)`) > 0
		}, "the first try is rolled back")
		require.NoError(t, reader.Rollback())
		if err = <-done; !errors.Is(err, upkeep.ErrBusy) { // the five tries take about a second
			require.NoError(t, err)
		}
		return err == nil
	}
	await.True(t, dropped, "the day is dropped")
	require.Equal(t, 1, calls)
	require.Equal(t, 1, f.Count("archive"))
	require.Zero(t, f.children())
}

func TestServerDoesNotEndALongArchive(t *testing.T) {
	f := newFixture(t, nil)
	f.Child("2020-01-02")
	f.PublishedOn("2020-01-02", 1)
	pool := f.DB.Another(t)
	pool.SetMaxOpenConns(1) // one session, so that the setting holds for what follows
	_, err := pool.ExecContext(t.Context(), "SET idle_in_transaction_session_timeout = '77s'")
	require.NoError(t, err)
	idle := ""
	s := outbox.NewStore(pool, &outbox.Config{BeforeDrop: func(ctx context.Context, p outbox.Partition) error {
		return p.DB.NewRaw("SELECT current_setting('idle_in_transaction_session_timeout')").Scan(ctx, &idle)
	}})
	require.NoError(t, s.Upkeep().DropExpired(t.Context()), "with a single connection")
	require.Equal(t, "0", idle)
	require.NoError(t, pool.NewRaw("SELECT current_setting('idle_in_transaction_session_timeout')").Scan(t.Context(), &idle))
	require.Equal(t, "77s", idle, "for that transaction only")
	require.Zero(t, f.children())
}

// With retention 0 days come and go like others, without rows. A day in which something is unsent stays.
func TestDaysAreDroppedAlsoWithoutRetention(t *testing.T) {
	f := newFixture(t, &outbox.Config{Retention: outbox.NoRetention})
	f.Child("2020-01-02")
	f.Child("2020-01-03")
	f.Record("a", "a1")
	f.Exec("UPDATE outbox SET created_at = '2020-01-03'")
	require.NoError(t, f.Clean(t.Context()))
	days := func(table string) int {
		return f.Count("pg_inherits WHERE inhparent = ?::regclass AND inhrelid::regclass::text ~ '_2020[0-9]{4}$'", table)
	}
	require.Equal(t, []int{1, 0, 1}, []int{days("outbox"), days("outbox_sent"), days("outbox_progress")})

	rows := f.Fetch()
	_, err := lanedb.Of(f.Handle()).Log.Record(t.Context(), []lanedb.Placed{{
		Lease: f.Leases[rows[0].Lane], Position: lanedb.Position{}.Publish([]int64{rows[0].Sequence}),
	}})
	require.NoError(t, err)
	require.NoError(t, f.Clean(t.Context()))
	require.Equal(t, []int{0, 0, 0}, []int{days("outbox"), days("outbox_sent"), days("outbox_progress")})
}

// A day of the DEFAULT child stays while something of it is unsent: it would be published while BeforeDrop is at work.
func TestDayOfTheDefaultChildStaysWhileSomethingIsUnsent(t *testing.T) {
	var archived []string
	f := newFixture(t, &outbox.Config{BeforeDrop: func(ctx context.Context, p outbox.Partition) error {
		archived = append(archived, p.Day.Format(time.DateOnly))
		return nil
	}})
	sequences := map[string]int64{}
	for name, day := range map[string]string{"a1": "2020-01-02", "a2": "2020-01-02", "b1": "2020-01-03"} {
		f.Exec(`INSERT INTO outbox (id, occurred_at, created_at, lane, tenant_id, topic, event_type, source, payload)
			VALUES (gen_random_uuid(), now(), ?, 1, 'x', 'order', ?, 's', 'x')`, day+" 23:00:00Z", name)
		var seq int64
		require.NoError(t, f.DB.NewRaw("SELECT max(seq) FROM outbox").Scan(t.Context(), &seq))
		sequences[name] = seq
	}
	publish := func(names ...string) {
		var at lanedb.Position
		for _, n := range names {
			at = at.Publish([]int64{sequences[n]})
		}
		_, err := lanedb.Of(f.Handle()).Log.Record(t.Context(), []lanedb.Placed{{Lease: f.Leases[1], Position: at}})
		require.NoError(t, err)
	}
	publish("a1", "b1")
	require.NoError(t, f.Clean(t.Context()))
	require.Equal(t, []string{"2020-01-03"}, archived)
	require.Equal(t, 2, f.Count("outbox"))
	publish("a1", "a2", "b1")
	require.NoError(t, f.Clean(t.Context()))
	require.Equal(t, []string{"2020-01-03", "2020-01-02"}, archived)
	require.Zero(t, f.Count("outbox"))
}

// A transaction that was open for days commits a row while BeforeDrop is at work. The day stays, and what BeforeDrop did is taken back.
func TestDayStaysWhenARowOfItIsCommittedMeanwhile(t *testing.T) {
	var f *fixture
	f = newFixture(t, &outbox.Config{BeforeDrop: func(ctx context.Context, p outbox.Partition) error {
		if _, err := p.DB.NewRaw("INSERT INTO kept (day) VALUES (?)", p.Day).Exec(ctx); err != nil {
			return err
		}
		_, err := f.DB.Exec(`INSERT INTO outbox (id, occurred_at, created_at, lane, tenant_id, topic, event_type, source, payload)
			VALUES (gen_random_uuid(), now(), ?, 1, 'x', 'order', 'late', 's', 'x')`, p.Day.Add(time.Hour))
		return err
	}})
	f.Exec("CREATE TABLE kept (day date)")
	f.Child("2020-01-02")
	f.Exec(`WITH row AS (INSERT INTO outbox (id, occurred_at, created_at, lane, tenant_id, topic, event_type, source, payload)
		VALUES (gen_random_uuid(), now(), '2020-01-02 12:00Z', 1, 'x', 'order', 'e', 's', 'x') RETURNING seq)
		INSERT INTO outbox_progress (lane, upto, sent, ahead, total) SELECT 1, seq, seq, '{}', 1 FROM row`)
	require.NoError(t, f.Clean(t.Context()))
	require.Equal(t, 2, f.Count("outbox"))
	require.Zero(t, f.Count("kept"))
}

// Somebody has deleted a lane. Nothing is published of it until reconcile enters it again, and its rows stay until then.
func TestDayStaysWithRowsOfALaneThatIsMissing(t *testing.T) {
	archived := 0
	f := newFixture(t, &outbox.Config{BeforeDrop: func(context.Context, outbox.Partition) error { archived++; return nil }})
	f.Child("2020-01-02")
	f.Record("a", "a1")
	lane := f.Fetch()[0].Lane
	f.Exec("UPDATE outbox SET created_at = '2020-01-02'")
	f.Exec("DELETE FROM outbox_lane WHERE lane = ?", lane)
	require.NoError(t, f.Clean(t.Context()))
	require.Zero(t, archived)
	var dropped bool
	require.NoError(t, f.DB.NewRaw("SELECT outbox_drop_partition('2020-01-02', kind => 'outbox')").Scan(t.Context(), &dropped))
	require.False(t, dropped)
	require.Equal(t, 1, f.Count("outbox"))
}

func TestKeepForeverKeepsEverything(t *testing.T) {
	f := newFixture(t, &outbox.Config{Retention: outbox.KeepForever, DeadRetention: outbox.KeepForever,
		BeforeDrop: func(context.Context, outbox.Partition) error { return errors.New("never called") }})
	f.Child("2020-01-02")
	f.PublishedOn("2020-01-02", 1)
	f.PublishedOn("2020-01-03", 1)
	f.Record("a", "a1")
	f.Kill(map[string]string{"a1": "no"})
	f.Exec("UPDATE outbox_dead SET died_at = '2020-01-01'")
	require.NoError(t, f.Clean(t.Context()))
	require.Equal(t, 2, f.Count("outbox_sent"))
	require.Equal(t, 1, f.Count("outbox_dead"))
}

func TestFailedAndDeadAreKeptByDefault(t *testing.T) {
	f := newFixture(t, nil)
	f.Record("a", "a1")
	f.Record("b", "b1")
	f.Kill(map[string]string{"a1": "no"})
	f.Exec("UPDATE outbox_dead SET died_at = '2020-01-01', created_at = '2020-01-01'")
	f.Exec("UPDATE outbox_held SET created_at = '2020-01-01'")
	require.NoError(t, f.Clean(t.Context()))
	require.Equal(t, map[string]string{"a1": "DEAD/1", "b1": "NEW/0"}, f.Statuses())
}

func TestDeadLettersExpireIfThatIsConfigured(t *testing.T) {
	var log bytes.Buffer
	f := newFixture(t, &outbox.Config{DeadRetention: 48 * time.Hour, Telemetry: telemetry.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	for _, key := range []string{"a", "b", "c"} {
		f.Record(key, "first")
		f.Record(key, "second")
	}
	f.Kill(map[string]string{"first": "no"})
	f.Exec("UPDATE outbox_dead SET died_at = now() - interval '49 hours' WHERE ordering_key <> 'default|order|c'")
	f.Exec("UPDATE outbox_dead SET died_at = now() - interval '47 hours' WHERE ordering_key = 'default|order|c'")
	require.NoError(t, f.Clean(t.Context()))
	require.Equal(t, 1, f.Count("outbox_dead"))
	require.Equal(t, map[string][]string{"default|order|a": {"second"}, "default|order|b": {"second"}}, f.Drain(), "their keys go on")
	entries, err := f.Audit(t.Context(), operator.AuditFilter{}, nil, 10)
	require.NoError(t, err)
	require.Len(t, entries, 1, "one for all of a kind")
	e := entries[0]
	require.Equal(t, []any{operator.Expire, "retention", "dead for more than 2 days", int64(2), "", "default", "order", "first"},
		[]any{e.Action, e.Actor, e.Reason, e.Events, e.EventID, e.TenantID, e.Topic, e.Type})
	require.Contains(t, log.String(), "box=outbox count=2")
	require.NoError(t, f.Clean(t.Context()))
	require.Equal(t, 1, f.Count("oncebox_audit"))
}

func TestTheAuditIsKeptForItsRetention(t *testing.T) {
	for days, c := range map[int]struct {
		retention time.Duration
		kept      int
	}{399: {0, 1}, 401: {0, 0}, 3: {48 * time.Hour, 0}, 4000: {outbox.KeepForever, 1}} {
		f := newFixture(t, &outbox.Config{AuditRetention: c.retention})
		f.Exec(`INSERT INTO oncebox_audit (part, actor, action, tenant_id, at)
			VALUES ('outbox', 'ann', 'discard', '', now() - ? * interval '24 hours')`, days)
		require.NoError(t, f.Clean(t.Context()))
		require.Equal(t, c.kept, f.Count("oncebox_audit"), "%d days", days)
	}
}

func TestRetentionsAreValidated(t *testing.T) {
	for _, d := range []time.Duration{time.Hour, -2, -time.Hour} {
		require.ErrorContains(t, (&outbox.Config{DeadRetention: d}).Validate(), "Config.DeadRetention")
		require.ErrorContains(t, (&outbox.Config{AuditRetention: d}).Validate(), "Config.AuditRetention")
	}
	for _, d := range []time.Duration{0, outbox.KeepForever, 24 * time.Hour} {
		require.NoError(t, (&outbox.Config{DeadRetention: d, AuditRetention: d}).Validate())
	}
}

// An entry of outbox_progress shows when rows were sent. It stays as long as one of them, wherever the row is.
func TestEntryStaysWithItsRows(t *testing.T) {
	f := newFixture(t, nil)
	f.Child("2020-01-02")
	f.Exec("DROP TABLE outbox_progress_20200102")
	insert := `INSERT INTO outbox (seq, id, occurred_at, created_at, lane, tenant_id, topic, event_type, source, payload)
		VALUES (?, gen_random_uuid(), now(), ?, ?, 'x', 'order', ?, 's', 'x')`
	f.Exec(insert, 1, "2020-01-02", 1, "sent")
	f.Exec(insert, 2, "2020-01-02", 2, "unsent") // the day stays
	f.Exec("INSERT INTO outbox_progress (lane, upto, sent, ahead, total, at) VALUES (1, 1, 1, '{}', 1, '2020-01-03'), (1, 5, 5, '{}', 2, now())")
	require.NoError(t, f.Clean(t.Context()))
	require.Equal(t, 1, f.Count("outbox_messages WHERE event_type = 'sent' AND sent_at = '2020-01-03'"))
	f.Exec("DELETE FROM outbox")
	require.NoError(t, f.Clean(t.Context()))
	require.Zero(t, f.Count("outbox_progress WHERE at = '2020-01-03'"))
}
