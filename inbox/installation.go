package inbox

import (
	"context"
	"errors"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/installation"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/retry"
)

// Installation returns the id of this database. The first call makes it. A copy or a replica has the id of its origin.
func (i *Inbox) Installation(ctx context.Context) (string, error) {
	return installation.ID(ctx, i.store.Patient, i.store.DB(ctx))
}

// KnownInstallation returns the id of this database, "" if it has none yet, and the SQL statement that gives it the id other: see
// [Inbox.Installation].
func (i *Inbox) KnownInstallation(ctx context.Context, other string) (id, takeOver string, err error) {
	id, err = installation.Known(ctx, i.store.Patient, i.store.DB(ctx))
	return id, installation.TakeOver(i.store.Patient, other), err
}

// Identify adds the id of this database to the subscriptions of consumers that belong to a service. The broker adapter then refuses another
// database with a service of that name: see [messaging.InstallationError]. It waits for the database. [Inbox.Receive] calls it.
func (i *Inbox) Identify(ctx context.Context) error {
	if len(i.ownable()) == 0 {
		return nil
	}
	for failures := 1; ; failures++ {
		id, err := i.Installation(ctx)
		if err == nil {
			i.mu.Lock()
			defer i.mu.Unlock()
			for _, c := range i.consuming {
				if c.subscription.Source != "" {
					c.subscription.Installation = id
				}
			}
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		wait := retry.Policy{Delay: i.cfg.PollInterval, MaxDelay: maxPause}.Pause(failures)
		i.store.Log.WarnContext(ctx, "oncebox: the database does not say which installation it is, and consumers wait for that, trying again",
			"pause", wait, "error", err)
		if backoff.Wait(ctx, wait) != nil {
			return err
		}
	}
}

// Explain returns err. If a broker refused this database, the error also has the SQL statement by which this database takes the place of
// the other.
func (i *Inbox) Explain(err error) error {
	if refused, ok := errors.AsType[*messaging.InstallationError](err); ok && refused.Mend == "" {
		refused.Mend = installation.TakeOver(i.store.SQL, refused.Owner)
	}
	return err
}
