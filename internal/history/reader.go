package history

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

// read reads the rows of a part by the index, whatever the other parts have.
const read = `
SELECT consumer, at, minutes, coalesce(waiting, -1), coalesce(parked, -1), coalesce(failing, -1), coalesce(dead, -1), coalesce(oldest, 0),
	came, went, failed, counted
FROM {schema}.oncebox_history
WHERE part = $1::text AND at > (SELECT clock_timestamp()) - $2::interval AND at <= (SELECT clock_timestamp()) ORDER BY at, consumer`

// Read returns the histories of a part over the last span, by consumer.
func Read(ctx context.Context, run *pgsql.Runner, db bun.IDB, part operator.Part, span time.Duration) (map[string]operator.History, error) {
	all := map[string]operator.History{}
	err := pgsql.Each(run.Query(ctx, db, read, string(part), span), func(scan pgsql.Scan) error {
		var name string
		var f operator.Figures
		var minutes int
		var oldest, counted float64
		err := scan(&name, &f.At, &minutes, &f.Waiting, &f.Parked, &f.Failing, &f.Dead, &oldest, &f.Came, &f.Went, &f.Failed, &counted)
		if err != nil {
			return err
		}
		f.Span, f.Oldest, f.Counted = time.Duration(minutes)*time.Minute, seconds(oldest), seconds(counted)
		h := all[name]
		h.Consumer, h.Figures = name, append(h.Figures, f)
		all[name] = h
		return nil
	})
	return all, wrap("read", err)
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
