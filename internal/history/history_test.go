package history_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/history"
	"github.com/oncebox/oncebox/internal/logbook"
	"github.com/oncebox/oncebox/internal/pgplan"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/operator"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const day = 24 * time.Hour

// diary is the history of a database.
type diary struct {
	*pgtest.DB

	t   *testing.T
	run *pgsql.Runner
}

func newDiary(t *testing.T) *diary {
	t.Helper()
	return &diary{DB: pgtest.Migrated(t, pgtest.Outbox), t: t, run: pgsql.New("", false)}
}

func (d *diary) writer() *history.Writer {
	return &history.Writer{Part: operator.PartInbox, Run: d.run, Log: slog.New(slog.NewTextHandler(d.t.Output(), nil))}
}

// read returns the history of the inbox over the last day, by consumer.
func (d *diary) read() map[string]operator.History {
	d.t.Helper()
	all, err := history.Read(d.t.Context(), d.run, d.DB.DB, operator.PartInbox, day)
	require.NoError(d.t, err)
	return all
}

func (d *diary) exec(statement string, args ...any) {
	d.t.Helper()
	_, err := d.ExecContext(d.t.Context(), statement, args...)
	require.NoError(d.t, err)
}

// minutes enters a row for each minute between two ages: waiting is the age in minutes, and one event came in each second.
func (d *diary) minutes(from, to time.Duration) {
	d.t.Helper()
	d.exec(`INSERT INTO oncebox_history (part, at, consumer, waiting, dead, came, counted)
		SELECT 'inbox', date_trunc('minute', clock_timestamp()) - n * interval '1 minute', 'billing', n, 0, 60, 60
		FROM generate_series(?0, ?1) n ON CONFLICT DO NOTHING`, int(to.Minutes()), int(from.Minutes())-1)
}

func (d *diary) rows() (n int) {
	d.t.Helper()
	require.NoError(d.t, d.QueryRowContext(d.t.Context(), "SELECT count(*) FROM oncebox_history").Scan(&n))
	return n
}

// The readings of a minute are one row: the highest numbers, and the sums. What one of them does not know, another one may.
func TestReadingsOfAMinuteAreOneRow(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	w := d.writer()
	var minutes []operator.Figures
	for n := 0; len(minutes) != 1; n++ { // two readings of a row may be of two minutes
		name := fmt.Sprint("billing", n)
		w.Note(t.Context(), d.DB.DB, map[string]operator.Figures{name: {
			Waiting: 7, Parked: operator.Unknown, Failing: operator.Unknown, Dead: operator.Unknown, Went: 3, Failed: 1, Counted: 15 * time.Second,
		}})
		w.Note(t.Context(), d.DB.DB, map[string]operator.Figures{name: {
			Waiting: 5, Parked: 2, Failing: 1, Dead: operator.Unknown, Oldest: time.Hour, Went: 4, Counted: 5 * time.Second,
		}})
		minutes = d.read()[name].Figures
	}
	got := minutes[0]
	require.False(t, got.Known(), "dead letters are not known")
	rate, ok := got.PerSecond(got.Went)
	require.Equal(t, []any{0.35, true}, []any{rate, ok})
	require.Zero(t, got.At.Second())
	got.At = time.Time{}
	require.Equal(t, operator.Figures{
		Span: time.Minute, Waiting: 7, Parked: 2, Failing: 1, Dead: operator.Unknown, Went: 7, Failed: 1, Counted: 20 * time.Second,
	}, got)
	_, ok = (&operator.Figures{}).PerSecond(0)
	require.False(t, ok, "nothing was counted")
}

// After two hours ten minutes are one row, after 24 hours they are gone, and what happened in between is neither lost nor counted twice.
func TestOldRowsAreMergedAndRemoved(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	d.minutes(30*time.Hour, 0)
	d.exec("INSERT INTO oncebox_history (part, at, waiting) SELECT 'outbox', at, waiting FROM oncebox_history")
	for range 3 {
		require.NoError(t, d.writer().Tidy(t.Context(), d.DB.DB))
	}
	list := d.read()["billing"].Figures
	require.LessOrEqual(t, len(list), 300)
	require.Equal(t, len(list)+30*60, d.rows(), "the rows of the other part stay")
	total := time.Duration(0)
	for n, f := range list {
		total += f.Counted
		require.Equal(t, f.Span, time.Duration(f.Came)*time.Second, "one in each second: %+v", f)
		if n > 0 {
			require.Equal(t, list[n-1].At.Add(list[n-1].Span), f.At, "one begins where the other ends")
			require.Greater(t, list[n-1].Waiting, f.Waiting, "the highest number of each")
		}
	}
	require.InDelta(t, day, total, float64(11*time.Minute))
	require.Equal(t, []time.Duration{10 * time.Minute, time.Minute}, []time.Duration{list[0].Span, list[len(list)-1].Span})
	require.GreaterOrEqual(t, time.Since(list[len(list)-121].At), 119*time.Minute)
	require.Equal(t, time.Minute, list[len(list)-121].Span, "two hours in minutes")
}

// Nobody read for three hours. There is no row for them, before the merge and after it.
func TestTimeWithoutReadingsHasNoRow(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	d.minutes(10*time.Hour, 6*time.Hour)
	d.minutes(3*time.Hour, 0)
	require.NoError(t, d.writer().Tidy(t.Context(), d.DB.DB))
	for _, f := range d.read()["billing"].Figures {
		age := time.Since(f.At)
		require.False(t, age > 190*time.Minute && age < 350*time.Minute, "%s ago there was no reading", age)
	}
}

// A minute that comes when its ten minutes are merged already is added to them.
func TestLateMinuteIsAdded(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	d.minutes(4*time.Hour, 3*time.Hour)
	w := d.writer()
	require.NoError(t, w.Tidy(t.Context(), d.DB.DB))
	sum := func() (sum int64) {
		for _, f := range d.read()["billing"].Figures {
			sum += f.Came
		}
		return sum
	}
	before, rows := sum(), d.rows()
	d.minutes(4*time.Hour-15*time.Minute, 4*time.Hour-20*time.Minute)
	require.NoError(t, w.Tidy(t.Context(), d.DB.DB))
	require.Equal(t, rows, d.rows())
	require.Greater(t, sum(), before)
}

// What is later than now was entered before the clock of the database was set back.
func TestFutureIsNotShown(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	d.minutes(time.Hour, 0)
	d.exec("UPDATE oncebox_history SET at = at + interval '3 hours'")
	require.Empty(t, d.read())
	require.NoError(t, d.writer().Tidy(t.Context(), d.DB.DB))
	require.Zero(t, d.rows())
}

func TestSwitchedOffNothingIsWritten(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	d.minutes(30*time.Hour, 0)
	before := d.rows()
	w := d.writer()
	w.Off, w.Tidies = true, true
	w.Note(t.Context(), d.DB.DB, map[string]operator.Figures{"billing": {}})
	require.Equal(t, before, d.rows())
}

// A service with very many consumers has no more rows than one with the first of them. The writer tidies by itself.
func TestRowsAreBounded(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	d.minutes(30*time.Hour, 0)
	reading := map[string]operator.Figures{}
	for n := range 3 * history.Most {
		reading[fmt.Sprintf("consumer-%03d", n)] = operator.Figures{}
	}
	w := d.writer()
	w.Tidies = true
	w.Note(t.Context(), d.DB.DB, reading)
	all := d.read()
	require.Len(t, all, 1+history.Most)
	require.Contains(t, all, "consumer-000")
	require.LessOrEqual(t, d.rows(), 300+history.Most)
}

// A history that cannot be kept is a warning: the reading itself was fine.
func TestFailureIsAWarning(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	d.exec("DROP TABLE oncebox_history")
	book := &logbook.Book{}
	w := d.writer()
	w.Log = book.Logger()
	w.Note(t.Context(), d.DB.DB, map[string]operator.Figures{"billing": {}})
	require.Equal(t, 1, book.Count("level=WARN"))
}

// A page reads the rows of its time, whatever the table has.
func TestHistoryIsReadByItsIndex(t *testing.T) {
	t.Parallel()
	d := newDiary(t)
	d.exec(`INSERT INTO oncebox_history (part, at, consumer) SELECT p, clock_timestamp() - n * interval '5 minutes', 'c' || c
		FROM unnest('{outbox,inbox}'::text[]) p, generate_series(1, 288) n, generate_series(1, 50) c`)
	d.exec("ANALYZE oncebox_history")
	plan, err := pgplan.Generic(t.Context(), d.DB.DB.DB, history.Statement)
	require.NoError(t, err)
	require.Contains(t, plan.Text, "oncebox_history_pkey")
	require.NotContains(t, plan.Text, "Seq Scan")
}
