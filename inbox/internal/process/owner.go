package process

import (
	"context"
	"errors"
	"strings"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/installation"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
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

// Owners returns the services that the consumers of this database belong to, by the names of the consumers, see inbox.OwnedBy.
func (c *Consumers) Owners(ctx context.Context) (map[string]string, error) {
	all, err := pgsql.Map[string](c.h.Patient.Query(ctx, c.h.DB(ctx), owners))
	return all, store.Wrap("read the owners of the consumers", err)
}

// Own records that the consumers of this process belong to its service, see inbox.OwnedBy. Two services in one database that use the same name
// by mistake would handle each other's parked messages, and each would skip messages that the other has handled. The broker cannot notice
// this, because each service may have a topic of its own.
func (c *Consumers) Own(ctx context.Context) error {
	all := c.ownable()
	if len(all) == 0 {
		return nil
	}
	names, sources := make([]string, len(all)), make([]string, len(all))
	for n, s := range all {
		names[n], sources[n] = s.Name, s.Source
	}
	if _, err := c.h.SQL.Exec(ctx, c.h.DB(ctx), own, names, sources); err != nil {
		return store.Wrap("look for the services that the consumers belong to", err)
	}
	// The statement may have recorded nothing because one consumer belongs to another service. The error says which.
	return c.checkOwners(ctx)
}

// ownable returns the subscriptions of the consumers that have an owner (inbox.OwnedBy).
func (c *Consumers) ownable() (all []messaging.Subscription) {
	for _, s := range c.Subscriptions() {
		if s.Source != "" {
			all = append(all, s)
		}
	}
	return all
}

// checkOwners returns an error if a consumer of this process belongs to another service. It changes nothing.
func (c *Consumers) checkOwners(ctx context.Context) error {
	all := c.ownable()
	if len(all) == 0 {
		return nil
	}
	known, err := c.Owners(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if owner := known[s.Name]; owner != "" && owner != s.Source {
			// The mend is a complete statement, because the operator who reads the error may know neither
			// schema nor table.
			mend, err := c.h.SQL.TextFor(ctx, c.h.DB(ctx), reassign)
			if err != nil {
				return err
			}
			return &messaging.SourceError{
				Topic: s.Topic, Subscription: s.Name, Owner: owner, Source: s.Source,
				Mend: mend + literal(s.Source) + " WHERE consumer = " + literal(s.Name),
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range all {
		c.owned[s.Name] = known[s.Name] != ""
	}
	return nil
}

// IsUnowned reports whether a consumer has an owner that is not recorded yet: its start may still be refused.
func (c *Consumers) IsUnowned(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unowned(name)
}

// unowned is IsUnowned for a caller that holds the mutex.
func (c *Consumers) unowned(name string) bool {
	for _, one := range c.all {
		if one.Subscription.Name == store.Family(name) && one.Subscription.Source != "" {
			return !c.owned[store.Family(name)]
		}
	}
	return false
}

// InsistOnOwners is checkOwners, tried until the database answers. It returns an error only if a consumer belongs to
// another service: only then must nothing be handled.
func (c *Consumers) InsistOnOwners(ctx context.Context) error {
	for failures := 1; ; failures++ {
		err := c.checkOwners(ctx)
		if _, refused := errors.AsType[*messaging.SourceError](err); refused || err == nil {
			return err
		}
		wait := c.h.Pauses().Pause(failures)
		if ctx.Err() == nil {
			c.h.Log.WarnContext(ctx, "oncebox: parked messages cannot be handled yet, trying again", "pause", wait, "error", err)
		}
		if backoff.Wait(ctx, wait) != nil {
			return nil //nolint:nilerr // ctx has ended
		}
	}
}

// literal quotes a text for a statement that an operator pastes into psql.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// Installation returns the id of this database. The first call makes it. A copy or a replica has the id of its origin.
func (c *Consumers) Installation(ctx context.Context) (string, error) {
	return installation.ID(ctx, c.h.Patient, c.h.DB(ctx))
}

// KnownInstallation returns the id of this database, "" if it has none yet, and the SQL statement that gives it the id other: see
// inbox.Inbox.Installation.
func (c *Consumers) KnownInstallation(ctx context.Context, other string) (id, takeOver string, err error) {
	id, err = installation.Known(ctx, c.h.Patient, c.h.DB(ctx))
	return id, installation.TakeOver(c.h.Patient, other), err
}

// Identify adds the id of this database to the subscriptions of consumers that belong to a service. The broker adapter then refuses another
// database with a service of that name: see [messaging.InstallationError]. It waits for the database. inbox.Inbox.Receive calls it.
func (c *Consumers) Identify(ctx context.Context) error {
	if len(c.ownable()) == 0 {
		return nil
	}
	for failures := 1; ; failures++ {
		id, err := c.Installation(ctx)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, one := range c.all {
				if one.Subscription.Source != "" {
					one.Subscription.Installation = id
				}
			}
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		wait := c.h.Pauses().Pause(failures)
		c.h.Log.WarnContext(ctx, "oncebox: the database does not say which installation it is, and consumers wait for that, trying again",
			"pause", wait, "error", err)
		if backoff.Wait(ctx, wait) != nil {
			return err
		}
	}
}

// Explain returns err. If a broker refused this database, the error also has the SQL statement by which this database takes the place of
// the other.
func (c *Consumers) Explain(err error) error {
	if refused, ok := errors.AsType[*messaging.InstallationError](err); ok && refused.Mend == "" {
		refused.Mend = installation.TakeOver(c.h.SQL, refused.Owner)
	}
	return err
}
