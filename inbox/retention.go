package inbox

import (
	"context"
	"errors"
	"time"

	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/operator"
)

// cleanInterval is how often RunCleaning cleans.
const cleanInterval = time.Hour

// RunCleaning cleans at once and then every hour, until ctx is done. Errors are logged and tried again: cleaning is not urgent.
func (i *Inbox) RunCleaning(ctx context.Context) error {
	for {
		if err := i.Clean(ctx); err != nil && ctx.Err() == nil {
			i.store.Log.WarnContext(ctx, "oncebox: cleaning the inbox failed, trying again", "pause", cleanInterval, "error", err)
		}
		if backoff.Wait(ctx, backoff.Jitter(cleanInterval)) != nil {
			return nil //nolint:nilerr // told to stop, which is no failure
		}
	}
}

// Clean makes partitions ahead and removes the entries, the dead letters and the audit that are older than their
// retentions, once. It is safe in any number of processes.
func (i *Inbox) Clean(ctx context.Context) error {
	err := errors.Join(i.EnsurePartitions(ctx), i.dead.Expire(ctx, i.cfg.DeadRetention), i.audit.Expire(ctx, i.store.DB(ctx)))
	if i.cfg.Retention == KeepForever {
		return err
	}
	return errors.Join(err, i.table.Cleaner.Clean(ctx, i.cfg.Retention))
}

// EnsurePartitions makes the daily partitions of yesterday, today and the next days. If one day fails, the others are made all the same. It
// waits once, for up to two seconds, for a table that is in use. It is safe in any number of processes. Entries of a day without a
// partition go to the DEFAULT partition and are found there, so nothing stops if this fails. But they are deleted one by one, while a daily
// partition is dropped as a whole, so call it before the first message.
func (i *Inbox) EnsurePartitions(ctx context.Context) error {
	return store.Wrap("make partitions", i.table.Cleaner.MakePartitions(ctx))
}

// Audit lists the actions of operators and of the retention, newest first. A page has at most limit entries (0: 100) and begins before the
// last one of the page before (nil: with the newest). Only its ID counts. Entries are kept for [Config.AuditRetention].
func (i *Inbox) Audit(ctx context.Context, filter operator.AuditFilter, before *operator.AuditEntry, limit int) ([]operator.AuditEntry, error) {
	return i.audit.List(ctx, i.store.DB(ctx), filter, before, limit)
}

// Retention returns how long this inbox remembers which messages it has handled, see [Config.Retention].
func (i *Inbox) Retention() time.Duration { return i.cfg.Retention }
