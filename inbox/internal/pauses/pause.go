package pauses

import (
	"context"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// listPauses reads the pauses that have not ended. The database compares the times, so that all processes agree on the end.
const listPauses = `
SELECT consumer, paused_by, reason, paused_at, ends_at, (extract(epoch FROM clock_timestamp() - paused_at) * 1000000)::bigint
FROM {schema}.inbox_pause WHERE ends_at IS NULL OR ends_at > clock_timestamp() ORDER BY consumer`

// listEnded reads the pauses that have ended lately.
const listEnded = `
SELECT consumer, ends_at FROM {schema}.inbox_pause WHERE ends_at <= clock_timestamp() AND ends_at > clock_timestamp() - interval '5 minutes'`

// Pause is a consumer that an operator has paused.
type Pause struct {
	// Consumer is its name. For a read model it is the name of the read model, for all of its generations.
	Consumer string
	// Actor and Reason are the fields of operator.By.
	Actor, Reason string
	// Since is when it was paused, and Age how long ago that is, by the clock of the database.
	Since time.Time
	Age   time.Duration
	// Until is when the pause ends by itself, by the clock of the database. Zero if it lasts until somebody resumes the consumer.
	Until time.Time
}

// IsSet reports whether this is a pause, and not the zero value of a consumer that is not paused.
func (p *Pause) IsSet() bool { return p.Actor != "" }

// Read lists the pauses that have not ended, by the names of their consumers.
func Read(ctx context.Context, h *store.Handle) ([]Pause, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Patience())
	defer cancel()
	list, err := pgsql.Collect(h.SQL.Query(ctx, h.DB(ctx), listPauses), func(scan pgsql.Scan, p *Pause) error {
		var until *time.Time
		var age int64
		err := scan(&p.Consumer, &p.Actor, &p.Reason, &p.Since, &until, &age)
		if until != nil {
			p.Until = *until
		}
		p.Age = max(time.Duration(age)*time.Microsecond, 0)
		return err
	})
	return list, store.Wrap("read which consumers are paused", err)
}

// Ended returns when the pauses of the last five minutes have ended, by the names of their consumers: an operator resumed them, or their time was over.
func Ended(ctx context.Context, h *store.Handle) (map[string]time.Time, error) {
	all := map[string]time.Time{}
	err := pgsql.Each(h.Patient.Query(ctx, h.DB(ctx), listEnded), func(scan pgsql.Scan) error {
		var name string
		var at time.Time
		err := scan(&name, &at)
		all[name] = at
		return err
	})
	return all, store.Wrap("read which pauses have ended", err)
}
