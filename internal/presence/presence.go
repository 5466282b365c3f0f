package presence

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/operator"
)

const (
	enter = `
INSERT INTO {schema}.oncebox_process AS p (process, name, host, service, version, library, parts, relay, reporter, broker, seen_until)
VALUES ($1::uuid, $2, $3, $4, $5, $6, $7, $8, $9::uuid, $10, clock_timestamp() + $11::interval)
ON CONFLICT (process) DO UPDATE SET seen_at = clock_timestamp(), seen_until = excluded.seen_until`

	// leave also removes processes that vanished more than a day ago.
	leave = `DELETE FROM {schema}.oncebox_process WHERE process = $1::uuid OR seen_until < clock_timestamp() - interval '1 day'`

	list = `
SELECT process::text, name, host, service, version, library, parts, relay, coalesce(reporter::text, ''), broker, began_at, seen_at,
	seen_until >= clock_timestamp()
FROM {schema}.oncebox_process WHERE seen_until > clock_timestamp() - interval '1 day' ORDER BY name, began_at`
)

const (
	// every is how often a process renews its row, and life how long the row is valid.
	every = 20 * time.Second
	life  = 3 * every
	// within bounds a statement, so that a database that hangs does not delay the end of the process.
	within = 2 * time.Second
)

// Presence is the row of a process.
type Presence struct {
	// Process is what the row says; its times have no meaning.
	Process operator.Process

	SQL *pgsql.Runner
	DB  bun.IDB
	Log *slog.Logger
}

// Keep enters the process, renews the row until ctx is done, and removes it. Only the first failure in a row is logged: a row that was not renewed
// shows by its age.
func (p *Presence) Keep(ctx context.Context) {
	defer p.leave(ctx)
	failing := false
	for ctx.Err() == nil {
		err := p.enter(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			p.Log.WarnContext(ctx, "oncebox: this process could not be entered into the list of processes; the next try follows", "error", pgerr.Explain(err))
		}
		failing = err != nil
		_ = backoff.Wait(ctx, every) // an error is the end of ctx
	}
}

// enter is not cancelled with ctx: the server might go on with the statement, and enter a process after it has left.
func (p *Presence) enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	is := &p.Process
	var inbox any
	if is.Inbox != "" {
		inbox = is.Inbox
	}
	_, err := p.SQL.Exec(ctx, p.DB, enter,
		is.ID, is.Name, is.Host, is.Service, is.Version, is.Library, strings.Join(is.Parts, " "), is.Relay, inbox, is.Broker, life)
	return err
}

// leave removes the row. If it fails, the row ends by itself.
func (p *Presence) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	if _, err := p.SQL.Exec(ctx, p.DB, leave, p.Process.ID); err != nil {
		p.Log.WarnContext(ctx, "oncebox: this process could not be removed from the list of processes; operators see it for a minute longer",
			"error", pgerr.Explain(err))
	}
}

// List returns the processes that are alive or vanished within the last day, by their names.
func List(ctx context.Context, run *pgsql.Runner, db bun.IDB) ([]operator.Process, error) {
	all, err := pgsql.Collect(run.Query(ctx, db, list), func(scan pgsql.Scan, p *operator.Process) error {
		var parts string
		err := scan(&p.ID, &p.Name, &p.Host, &p.Service, &p.Version, &p.Library, &parts, &p.Relay, &p.Inbox, &p.Broker, &p.BeganAt, &p.SeenAt, &p.Alive)
		p.Parts = strings.Fields(parts)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("presence: list the processes: %w", pgerr.Explain(err))
	}
	return all, nil
}
