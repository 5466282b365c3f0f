// Package leader has one of several processes do what only one should do at a time, such as reading statistics that all of them would
// read alike. It owns the table oncebox_leader.
package leader

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// interval is how often the leader reads by default, and how often the others look whether there is one.
const interval = 15 * time.Second

// lifetimes is for how many intervals the leader may be silent by default before another one takes over.
const lifetimes = 3

// readWithin bounds a reading, and so for how long the end of a process waits for it.
const readWithin = 5 * time.Second

// resignWithin bounds the statement with which a leader resigns, so that a database that hangs does not hold up the end of the process.
const resignWithin = 2 * time.Second

const (
	// lead takes or renews the lease. What would be refused anyway is left out before the INSERT, which would lock the row. A lease that ends
	// later than any that is given is of a clock that went back since: it is taken, and what two may show for a moment is the same.
	lead = `
INSERT INTO {schema}.oncebox_leader AS l (name, owner, lease_until)
SELECT $1::text, $2::uuid, clock_timestamp() + $3::interval
WHERE NOT EXISTS (SELECT FROM {schema}.oncebox_leader o WHERE o.name = $1::text AND o.owner <> $2::uuid
	AND o.lease_until BETWEEN clock_timestamp() AND clock_timestamp() + 5 * $3::interval)
ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
WHERE l.owner = excluded.owner OR l.lease_until NOT BETWEEN clock_timestamp() AND clock_timestamp() + 5 * $3::interval`

	resign = `UPDATE {schema}.oncebox_leader SET lease_until = '-infinity' WHERE name = $1 AND owner = $2`
)

// Reader reads something again and again, in one process of those that run a Reader of its name in one schema.
type Reader[T any] struct {
	// Name is that of the task, as outbox.stats.
	Name string
	// SQL and DB reach the database whose table decides.
	SQL *pgsql.Runner
	DB  bun.IDB
	// Read is called by the leader every interval. It has until the next one, and 5 seconds at most.
	Read func(ctx context.Context) (T, error)
	// Log gets a warning for each reading that fails.
	Log *slog.Logger

	// Interval is how often the leader reads, and how often the others look whether there is one. 0: 15 seconds.
	Interval time.Duration

	lease  time.Duration // 0: lifetimes intervals
	within time.Duration // 0: the interval, and 5 seconds at most

	mu     sync.Mutex
	latest T
	until  time.Time
}

// Latest returns what was read last, if this process read it and is still the leader.
//
// It counts from before the lease was asked for, by the clock of this process, and so ends here before the database lets another
// process read: what one process shows is never shown by another one as well, also when the leader hangs or is cut off.
func (r *Reader[T]) Latest() (T, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest, time.Now().Before(r.until)
}

// Run reads until ctx is done, and lets another process lead then.
func (r *Reader[T]) Run(ctx context.Context) {
	every := cmp.Or(r.Interval, interval)
	owner := uuid.NewString()
	for {
		err := r.round(ctx, owner, every)
		if ctx.Err() != nil {
			break
		}
		pause := every
		if err != nil { // another process may be able to
			pause = 2 * every
			r.Log.WarnContext(ctx, "oncebox: statistics for the metrics could not be read, it is tried again", "task", r.Name, "pause", pause, "error", err)
			r.resign(ctx, owner)
		}
		if backoff.Wait(ctx, pause) != nil {
			break
		}
	}
	r.resign(ctx, owner)
}

// resign forgets what was read before another process may lead. If that fails the lease ends by itself.
func (r *Reader[T]) resign(ctx context.Context, owner string) {
	r.mu.Lock()
	r.until = time.Time{}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignWithin)
	defer cancel()
	_, _ = r.SQL.Exec(ctx, r.DB, resign, r.Name, owner)
}

func (r *Reader[T]) round(ctx context.Context, owner string, every time.Duration) error {
	// What has begun is not broken off when the process ends: the server might go on with it, and hold the locks of the tables.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(r.within, min(every, readWithin)))
	defer cancel()
	lease := cmp.Or(r.lease, lifetimes*every)
	until := time.Now().Add(lease)
	led, err := r.SQL.Exec(bounded, r.DB, lead, r.Name, owner, lease)
	if err != nil {
		return fmt.Errorf("leader: take the lease of %s: %w", r.Name, pgsql.Explain(err))
	}
	if led == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.until = time.Time{}
		return nil
	}
	latest, err := r.Read(bounded)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latest, r.until = latest, until
	return nil
}
