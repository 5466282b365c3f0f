package inbox

import (
	"context"
	"errors"
	"strings"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

const (
	// own records the first service that runs each consumer. If one of the consumers belongs to another service, it records none of them.
	// A new row has no times, because the consumer has not run yet.
	own = `
WITH mine AS MATERIALIZED (SELECT DISTINCT c, s FROM unnest($1::text[], $2::text[]) u(c, s))
INSERT INTO {schema}.inbox_consumer AS o (consumer, source, beat_at, active_at)
SELECT c, s, NULL, NULL FROM mine
WHERE NOT EXISTS (SELECT FROM {schema}.inbox_consumer x JOIN mine m ON m.c = x.consumer AND m.s <> x.source)
ORDER BY c
ON CONFLICT (consumer) DO UPDATE SET source = coalesce(o.source, excluded.source)`

	owners = `SELECT consumer, source FROM {schema}.inbox_consumer WHERE source IS NOT NULL`

	// reassign is the statement that an error suggests to operators, for a service that was renamed.
	reassign = `UPDATE {schema}.inbox_consumer SET source = `
)

// Owners returns the services that the consumers of this database belong to, by the names of the consumers, see [OwnedBy].
func (i *Inbox) Owners(ctx context.Context) (map[string]string, error) {
	list := map[string]string{}
	err := pgsql.Each(i.store.Patient.Query(ctx, i.store.DB(ctx), owners), func(scan pgsql.Scan) error {
		var consumer, source string
		if err := scan(&consumer, &source); err != nil {
			return err
		}
		list[consumer] = source
		return nil
	})
	return list, wrapErr("read the owners of the consumers", err)
}

// own records that the consumers of this process belong to its service, see [OwnedBy]. Two services in one database that use the same name
// by mistake would handle each other's parked messages, and each would skip messages that the other has handled. The broker cannot notice
// this, because each service may have a topic of its own.
func (i *Inbox) own(ctx context.Context) error {
	all := i.ownable()
	if len(all) == 0 {
		return nil
	}
	names, sources := make([]string, len(all)), make([]string, len(all))
	for n, s := range all {
		names[n], sources[n] = s.Name, s.Source
	}
	if _, err := i.store.SQL.Exec(ctx, i.store.DB(ctx), own, names, sources); err != nil {
		return wrapErr("look for the services that the consumers belong to", err)
	}
	return i.checkOwners(ctx)
}

// ownable returns the subscriptions of the consumers that have an owner ([OwnedBy]).
func (i *Inbox) ownable() (all []messaging.Subscription) {
	for _, s := range i.Subscriptions() {
		if s.Source != "" {
			all = append(all, s)
		}
	}
	return all
}

// checkOwners returns an error if a consumer of this process belongs to another service. It changes nothing.
func (i *Inbox) checkOwners(ctx context.Context) error {
	all := i.ownable()
	if len(all) == 0 {
		return nil
	}
	known, err := i.Owners(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if owner := known[s.Name]; owner != "" && owner != s.Source {
			mend, err := i.store.SQL.TextFor(ctx, i.store.DB(ctx), reassign)
			if err != nil {
				return err
			}
			return &messaging.SourceError{
				Topic: s.Topic, Subscription: s.Name, Owner: owner, Source: s.Source,
				Mend: mend + literal(s.Source) + " WHERE consumer = " + literal(s.Name),
			}
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range all {
		i.owned[s.Name] = known[s.Name] != ""
	}
	return nil
}

// isUnowned reports whether a consumer has an owner that is not recorded yet: its start may still be refused.
func (i *Inbox) isUnowned(name string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.unowned(name)
}

// unowned is isUnowned for a caller that holds the mutex.
func (i *Inbox) unowned(name string) bool {
	for _, c := range i.consuming {
		if c.subscription.Name == store.Family(name) && c.subscription.Source != "" {
			return !i.owned[store.Family(name)]
		}
	}
	return false
}

// insistOnOwners is checkOwners, tried until the database answers.
func (i *Inbox) insistOnOwners(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := i.checkOwners(ctx)
		if _, refused := errors.AsType[*messaging.SourceError](err); refused || err == nil {
			return err
		}
		wait := retry.Policy{Delay: i.cfg.PollInterval, MaxDelay: maxPause}.Pause(failures)
		if ctx.Err() == nil {
			i.store.Log.WarnContext(ctx, "oncebox: parked messages cannot be handled yet, trying again", "pause", wait, "error", err)
		}
		if backoff.Wait(ctx, wait) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
	}
}

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
