package history

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// Most is the number of consumers that have a history: the first ones by their names.
const Most = 50

const (
	// note adds a reading to the row of the present minute. All numbers but the sums are -1 if they are not known: greatest ignores NULL.
	note = `
INSERT INTO {schema}.oncebox_history AS h (part, at, consumer, waiting, parked, failing, dead, oldest, came, went, failed, counted)
SELECT $1::text, date_trunc('minute', clock_timestamp()), u.consumer, nullif(u.waiting, -1), nullif(u.parked, -1), nullif(u.failing, -1),
	nullif(u.dead, -1), nullif(u.oldest, -1), u.came, u.went, u.failed, u.counted
FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::float8[], $8::bigint[], $9::bigint[], $10::bigint[], $11::float8[])
	u(consumer, waiting, parked, failing, dead, oldest, came, went, failed, counted)
ON CONFLICT (part, at, consumer) DO UPDATE SET ` + merge

	// merge adds a row to the row that is there.
	merge = `
	waiting = greatest(h.waiting, excluded.waiting), parked = greatest(h.parked, excluded.parked), failing = greatest(h.failing, excluded.failing),
	dead = greatest(h.dead, excluded.dead), oldest = greatest(h.oldest, excluded.oldest),
	came = h.came + excluded.came, went = h.went + excluded.went, failed = h.failed + excluded.failed, counted = h.counted + excluded.counted`

	// roll makes rows of ten minutes from the rows of minutes that are two hours old. The time is read once, in a sub-select: with a volatile
	// function in the condition PostgreSQL could not limit the scan of the index. A minute may begin when its ten minutes do: its row is deleted by
	// the same statement, so it is no conflict. A conflict comes from a minute that was entered late, because the clock had gone back.
	roll = `
WITH old AS (
	DELETE FROM {schema}.oncebox_history o
	WHERE o.part = $1::text AND o.minutes = 1
		AND o.at < (SELECT date_bin('10 minutes', clock_timestamp() - interval '2 hours', timestamptz 'epoch'))
	RETURNING *)
INSERT INTO {schema}.oncebox_history AS h (part, at, consumer, minutes, waiting, parked, failing, dead, oldest, came, went, failed, counted)
SELECT o.part, date_bin('10 minutes', o.at, timestamptz 'epoch') AS ten, o.consumer, 10, max(o.waiting), max(o.parked), max(o.failing), max(o.dead),
	max(o.oldest), sum(o.came), sum(o.went), sum(o.failed), sum(o.counted)
FROM old o GROUP BY o.part, ten, o.consumer
ON CONFLICT (part, at, consumer) DO UPDATE SET minutes = 10,` + merge

	// forget removes what is too old, and what is later than now because the clock was set back.
	forget = `
DELETE FROM {schema}.oncebox_history WHERE part = $1::text
	AND (at < (SELECT clock_timestamp()) - interval '24 hours' OR at > (SELECT clock_timestamp()) + interval '1 minute')`
)

// tidyEvery is how often rows are merged and removed.
const tidyEvery = 10 * time.Minute

// Writer enters the readings of one part. Only the process that the package leader has chosen uses it, and one goroutine at a time.
type Writer struct {
	Part operator.Part
	Run  *pgsql.Runner
	// Off: nothing is written.
	Off bool
	// Tidies: this writer merges and removes the rows of the part. A part has one such writer.
	Tidies bool
	// Log gets a warning for each reading that could not be entered.
	Log *slog.Logger

	tidied time.Time
}

// Note enters a reading: the figures by consumer, or under "" those of the outbox. Their At and Span have no meaning. The gauges of all readings of
// a minute become their maximum, and the sums are added up.
func (w *Writer) Note(ctx context.Context, db bun.IDB, reading map[string]operator.Figures) {
	if w.Off || len(reading) == 0 {
		return
	}
	err := w.enter(ctx, db, reading)
	if err == nil && w.Tidies && time.Since(w.tidied) >= tidyEvery {
		if err = w.Tidy(ctx, db); err == nil {
			w.tidied = time.Now()
		}
	}
	w.Warn(ctx, err)
}

// Warn logs that a reading could not be entered, unless err is nil. The reading goes on: no metric should be missing because its history
// cannot be kept.
func (w *Writer) Warn(ctx context.Context, err error) {
	if err != nil {
		w.Log.WarnContext(ctx, "oncebox: the history of the gauges could not be kept; the console shows a gap", "part", w.Part, "error", err)
	}
}

// enter writes the rows in the order of the consumers, so that two writers of one part never wait for each other in a circle.
func (w *Writer) enter(ctx context.Context, db bun.IDB, reading map[string]operator.Figures) error {
	names := slices.Sorted(maps.Keys(reading))
	names = names[:min(len(names), Most)]
	n := len(names)
	waiting, parked, failing, dead := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	came, went, failed := make([]int64, n), make([]int64, n), make([]int64, n)
	oldest, counted := make([]float64, n), make([]float64, n)
	for i, name := range names {
		f := reading[name]
		waiting[i], parked[i], failing[i], dead[i] = f.Waiting, f.Parked, f.Failing, f.Dead
		came[i], went[i], failed[i], counted[i] = f.Came, f.Went, f.Failed, f.Counted.Seconds()
		oldest[i] = f.Oldest.Seconds()
		if !f.Known() {
			oldest[i] = operator.Unknown
		}
	}
	_, err := w.Run.Exec(ctx, db, note, string(w.Part), names, waiting, parked, failing, dead, oldest, came, went, failed, counted)
	return wrap("enter a reading", err)
}

// Tidy merges the rows of minutes that are two hours old, and removes the rows that are 24 hours old.
func (w *Writer) Tidy(ctx context.Context, db bun.IDB) error {
	for _, statement := range []string{roll, forget} {
		if _, err := w.Run.Exec(ctx, db, statement, string(w.Part)); err != nil {
			return wrap("merge and remove old rows", err)
		}
	}
	return nil
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("history: %s: %w", what, pgerr.Explain(err))
}
