// Package leader chooses one of several processes for a task that only one should do at a time, such as reading statistics. The choice is a row
// of oncebox_lease.
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
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
)

// interval is how often the leader reads by default, and how often the others check whether there is a leader.
const interval = 15 * time.Second

// readWithin limits a reading, and so how long the end of a process waits for it.
const readWithin = 5 * time.Second

// lifetimes is the length of the lease in intervals, beside the time of one reading: a leader that is silent for longer is replaced. Without that
// time a leader whose database is slow would lose the lease while it reads.
const lifetimes = 3

// resignWithin limits the statement with which a leader resigns, so that a hanging database does not delay the end of the process.
const resignWithin = 2 * time.Second

const (
	// lead takes or renews the lease. If another process holds it, there is no INSERT, because that would lock the row. A lease that ends later than a
	// new one would is from before the server's clock was set back: it is taken over, and for a moment two processes may show the same values.
	lead = `
INSERT INTO {schema}.oncebox_lease AS l (task, owner, lease_until)
SELECT $1::text, $2::uuid, clock_timestamp() + $3::interval
WHERE NOT EXISTS (SELECT FROM {schema}.oncebox_lease o WHERE o.task = $1::text AND o.owner <> $2::uuid
	AND o.lease_until BETWEEN clock_timestamp() AND clock_timestamp() + 5 * $3::interval)
ON CONFLICT (task, consumer, key_lock) DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until
WHERE l.owner = excluded.owner OR l.lease_until NOT BETWEEN clock_timestamp() AND clock_timestamp() + 5 * $3::interval`

	resign = `UPDATE {schema}.oncebox_lease SET lease_until = '-infinity' WHERE task = $1 AND owner = $2`
)

// Reader calls Read again and again, in one process at a time of all that run a Reader with the same name and schema.
type Reader[T any] struct {
	// Name is the name of the task, such as outbox.stats.
	Name string
	// SQL and DB lead to the database with the table of leases.
	SQL *pgsql.Runner
	DB  bun.IDB
	// Read is called by the leader, which waits for an interval after it. It may take 5 seconds.
	Read func(ctx context.Context) (T, error)
	// Log gets a warning for each reading that fails.
	Log *slog.Logger

	// Interval is how often the leader reads, and how often the others check whether there is a leader. 0: 15 seconds.
	Interval time.Duration

	lease  time.Duration // 0: lifetimes intervals and readWithin
	within time.Duration // 0: readWithin

	mu     sync.Mutex
	latest T
	until  time.Time
}

// Latest returns what was read last, if this process read it and is still the leader.
//
// The lease counts from before it was requested, by the clock of this process, and so ends here before the database lets another process lead. So
// two processes never show the same value, even if the leader hangs or is cut off.
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

// resign forgets the latest value, and then gives up the lease. If that fails, the lease ends by itself.
func (r *Reader[T]) resign(ctx context.Context, owner string) {
	r.mu.Lock()
	r.until = time.Time{}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignWithin)
	defer cancel()
	_, _ = r.SQL.Exec(ctx, r.DB, resign, r.Name, owner)
}

func (r *Reader[T]) round(ctx context.Context, owner string, every time.Duration) error {
	// The end of the process does not cancel a reading that has begun: the server might go on with it, and hold the locks of the tables.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(r.within, readWithin))
	defer cancel()
	lease := cmp.Or(r.lease, lifetimes*every+readWithin)
	until := time.Now().Add(lease)
	led, err := r.SQL.Exec(bounded, r.DB, lead, r.Name, owner, lease)
	if err != nil {
		return fmt.Errorf("leader: take the lease of %s: %w", r.Name, pgerr.Explain(err))
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
