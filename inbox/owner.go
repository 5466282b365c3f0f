package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
)

const (
	// own notes the first service that runs a consumer. DO UPDATE, which changes nothing, returns the row that is there.
	own = `
INSERT INTO {schema}.inbox_owner AS o (consumer, source) VALUES ($1::text, $2::text)
ON CONFLICT (consumer) DO UPDATE SET source = o.source RETURNING source`

	owners = `SELECT consumer, source FROM {schema}.inbox_owner`

	// reassign is what an operator runs, with literals, when a service was renamed.
	reassign = `UPDATE {schema}.inbox_owner SET source = `
)

// Owners returns the services that the consumers of this database belong to, by the names of the consumers, see [OwnedBy].
func (i *Inbox) Owners(ctx context.Context) (map[string]string, error) {
	rows, err := i.patient.Query(ctx, i.units.DB(ctx), owners)
	if err != nil {
		return nil, wrapErr("read the owners of the consumers", err)
	}
	defer rows.Close()
	list := map[string]string{}
	for rows.Next() {
		var consumer, source string
		if err := rows.Scan(&consumer, &source); err != nil {
			return nil, wrapErr("read the owners of the consumers", err)
		}
		list[consumer] = source
	}
	return list, wrapErr("read the owners of the consumers", rows.Err())
}

// own makes the consumers of this process its service's, see [OwnedBy]. Two services in one database that use one name by mistake
// would handle each other's parked messages, and skip each other's entries. A broker does not notice: each may have a topic of its own.
func (i *Inbox) own(ctx context.Context) error {
	i.mu.Lock()
	all := make([]messaging.Subscription, 0, len(i.consuming))
	for _, c := range i.consuming {
		all = append(all, c.subscription)
	}
	i.mu.Unlock()
	for _, s := range all {
		if s.Source == "" {
			continue
		}
		var owner string
		if err := i.sql.QueryRow(ctx, i.units.DB(ctx), own, []any{s.Name, s.Source}, &owner); err != nil {
			return fmt.Errorf("inbox: look for the service that consumer %s belongs to: %w", s.Name, pgsql.Explain(err))
		}
		if owner != s.Source {
			return &messaging.SourceError{
				Topic: s.Topic, Subscription: s.Name, Owner: owner, Source: s.Source,
				Mend: i.sql.Text(reassign) + literal(s.Source) + " WHERE consumer = " + literal(s.Name),
			}
		}
	}
	return nil
}

// insistOnOwning is own, tried until the database answers.
func (i *Inbox) insistOnOwning(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := i.own(ctx)
		if _, refused := errors.AsType[*messaging.SourceError](err); refused || err == nil {
			return err
		}
		wait := backoff.Jitter(backoff.Exponential(failures, i.cfg.PollInterval, maxPause))
		if ctx.Err() == nil {
			i.log.WarnContext(ctx, "oncebox: parked messages cannot be handled yet, trying again", "pause", wait, "error", err)
		}
		if backoff.Wait(ctx, wait) != nil {
			return nil //nolint:nilerr // told to stop
		}
	}
}

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
