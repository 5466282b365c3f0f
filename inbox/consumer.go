package inbox

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/skipped"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// consumer is what all messages of one consumer have in common, however they are handled: its settings, and its part of the tables.
type consumer struct {
	settings

	box   *Inbox
	name  string
	model *store.Membership // nil: it is not the consumer of a read model

	// unproved is the number of messages whose try is still to be counted before the handler runs, see Config.CrashGuard.
	unproved atomic.Int64
}

// ordered returns id, without its order if the consumer is Unordered.
func (c *consumer) ordered(id store.Identity) store.Identity {
	if c.unordered {
		return id.Disordered()
	}
	return id
}

// mustCount reports whether the try has to be counted before the handler runs: because it is not the first try, or because an earlier try
// may have killed its process. In a unit of the caller it is false, because the count could not be committed before.
func (c *consumer) mustCount(ctx context.Context, m *messaging.Message) bool {
	if _, within := uow.FromContext(ctx); within || c.storesFirst {
		return false
	}
	return m.Attempt > 1 || c.unproved.Load() > 0
}

// park parks messages that were not tried, and stops the keys of flow, which were flowing.
func (c *consumer) park(ctx context.Context, u *uow.Unit, list []store.Parking, flow ...store.Identity) error {
	if len(list) == 0 {
		return nil
	}
	// First the messages, then the stop of their keys: a key that has stopped with nothing parked would wait for nobody.
	if _, err := c.box.table.Parked.Park(ctx, u.DB(), list...); err != nil {
		return fmt.Errorf("inbox: park %d messages, the first is %s: %w", len(list), list[0].ID.Key, err)
	}
	if len(flow) == 0 {
		return nil
	}
	if err := c.box.table.Keys.Stop(ctx, u.DB(), store.KeyWaiting, 0, flow...); err != nil {
		return fmt.Errorf("inbox: store message %s: %w", list[0].ID.Key, err)
	}
	u.AfterCommit(c.toldOfParked)
	return nil
}

// toldOfParked wakes RunParked in this process, and logs an error if no process runs it.
func (c *consumer) toldOfParked(ctx context.Context) {
	c.box.wake()
	if c.box.runners.Load() == 0 {
		c.box.process.WarnIfUnattended(ctx, c.name)
	}
}

// settled counts a message that needs nothing more from the broker.
func (c *consumer) settled(ctx context.Context, became store.Entry) {
	c.box.count(ctx, c.name, c.outcome(became))
	if became == store.Passed {
		skipped.Add(ctx, 1) // for the metrics of the consumer
	}
	if became != store.Duplicate {
		c.survived()
	}
}

// survived counts a message that did not kill the process.
func (c *consumer) survived() {
	if c.unproved.Load() > 0 {
		c.unproved.Add(-1)
	}
}

// outcome names the result of an entry for the metrics.
func (c *consumer) outcome(became store.Entry) string {
	switch {
	case became == store.Duplicate:
		return outcomeDuplicate
	// A consumer that stores first has only parked the message by now. It is counted as handled when a runner has handled it.
	case became == store.Passed:
		return outcomeSkipped
	case became == store.Behind, became == store.Early, c.storesFirst:
		return outcomeParked
	default:
		return outcomeHandled
	}
}

// settle enters a message after its handler has ended: its work was rolled back, or was done under a lease. It calls fn unless a copy of
// the message was settled first.
func (c *consumer) settle(ctx context.Context, id store.Identity, fn func(context.Context, *uow.Unit, store.Entry) error) (became store.Entry, err error) {
	err = c.box.store.Units.Do(ctx, func(ctx context.Context, u *uow.Unit) (err error) {
		if became, err = c.enter(ctx, u, id); err != nil || became == store.Duplicate {
			return err
		}
		// Whatever is written here commits together with the end of the lease: a handler that has lost its lease settles nothing.
		if err := endLease(ctx, c.box, u, id); err != nil {
			return err
		}
		if err := c.box.table.Attempts.Forget(ctx, u.DB(), id); err != nil {
			return err
		}
		return fn(ctx, u, became)
	}, store.ReadCommitted())
	return became, err
}

// enter enters a message. For the handler of a read model it passes the gate first.
func (c *consumer) enter(ctx context.Context, u *uow.Unit, id store.Identity) (store.Entry, error) {
	if c.model == nil {
		return c.box.table.Entries.Enter(ctx, u, id)
	}
	return c.box.table.Gates.Enter(ctx, u, id, c.model)
}

// gate prevents a reset of the read model until the end of the transaction. rebuilding reports whether live messages have to wait.
func (c *consumer) gate(ctx context.Context, tx bun.IDB) (rebuilding bool, err error) {
	if c.model == nil {
		return false, nil
	}
	return c.box.table.Gates.Pass(ctx, tx, c.model)
}

// setAside stores a live message until the rebuild has ended.
func (c *consumer) setAside(ctx context.Context, tx bun.IDB, id store.Identity, m *messaging.Message) error {
	return c.box.table.Gates.SetAside(ctx, tx, id, m, c.model)
}

// noteBuild logs that messages wait for a build that knows them: once for each type and version, because such messages may be many.
func (c *consumer) noteBuild(ctx context.Context, e *event.Envelope, cause error) {
	if c.box.first(logged{consumer: c.name, eventType: e.Type, version: e.SchemaVersion}) {
		c.box.store.Log.WarnContext(ctx, "oncebox: messages are parked until a build that knows their type and version is deployed, "+
			"and what is behind them waits",
			"consumer", c.name, "topic", e.Topic, "type", e.Type, "version", e.SchemaVersion, "limit", c.retry.DeployWait,
			"id", e.ID, "tenant", e.TenantID, "error", cause)
	}
}
