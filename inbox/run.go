package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/inbox/internal/process"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/internal/arrival"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/uow"
)

// Run runs the consumers of [Inbox.Consume] until ctx is done: it receives their messages from the broker and handles them, handles parked
// messages, and cleans. If broker is nil, a relay stores their messages ([Inbox.Publisher]) and they are handled from the database.
//
// It returns an error at once when the subscriptions are refused. It waits for a broker or a database that cannot be reached. Any number of
// processes may run the same consumers. When ctx is cancelled, handlers go on for up to ConsumerConfig.DrainTimeout and
// [Config.DrainTimeout] before their context is cancelled.
func (i *Inbox) Run(ctx context.Context, broker messaging.Subscriber) error {
	defer quietlog.Flush(i.store.Log)
	if err := i.EnsurePartitions(ctx); err != nil && ctx.Err() == nil {
		i.store.Log.WarnContext(ctx, "oncebox: partitions of table inbox could not be created; its rows go to the default partition until then", "error", err)
	}
	// Without a broker the database stands for it, so the subscriptions must exist before the first event is published.
	if broker == nil {
		err := arrival.Wait{Limit: i.cfg.DatabaseWait, Log: i.store.Log}.Until(ctx, func() error { return i.process.SubscribeAll(ctx) })
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	// One part that ends with an error ends the others, so that the process restarts as a whole and does not run in half.
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := i.process.Declare(ctx, broker); err != nil {
			return err
		}
		return i.Receive(ctx, broker)
	})
	group.Go(func() error { return i.RunParked(ctx) })
	group.Go(func() error { return i.RunCleaning(ctx) })
	group.Go(func() error { return i.RunReporting(ctx, broker, nil) })
	group.Go(func() error { i.state.WatchBrokers(ctx, broker); return nil })
	return group.Wait()
}

// Subscription says that a consumer handles the messages of a topic, where no broker keeps subscriptions.
type Subscription struct {
	Topic, Consumer string
	// ReadModel says that it is the consumer of a read model.
	ReadModel bool
}

// Subscribe stores subscriptions; [consumers.Consumers.Forget] removes all subscriptions of a consumer. After [Config.PollInterval] every process that
// delivers messages without a broker follows them. oncebox.App calls it.
func (i *Inbox) Subscribe(ctx context.Context, all ...Subscription) error {
	for _, s := range all {
		if err := i.process.Subscribe(ctx, process.Subscription(s)); err != nil {
			return err
		}
	}
	return nil
}

// Unsubscribe ends single subscriptions of a consumer, once no running build of the program handles those topics any more; [consumers.Consumers.Forget]
// ends all subscriptions of a consumer. Messages that were stored already stay parked, and are handled or given up like other parked
// messages.
func (i *Inbox) Unsubscribe(ctx context.Context, all ...Subscription) error {
	for _, s := range all {
		if err := i.process.Unsubscribe(ctx, process.Subscription(s)); err != nil {
			return err
		}
	}
	return nil
}

// Subscriptions returns the subscriptions of this process's consumers.
func (i *Inbox) Subscriptions() []messaging.Subscription { return i.process.Subscriptions() }

// SubscribeAll stores the subscriptions of this process's consumers, see [Inbox.Subscribe], and records that the consumers belong to its
// service.
func (i *Inbox) SubscribeAll(ctx context.Context) error { return i.process.SubscribeAll(ctx) }

// Receive is the part of [Inbox.Run] that receives from the broker, until ctx is done.
func (i *Inbox) Receive(ctx context.Context, broker messaging.Subscriber) error {
	return i.process.Receive(ctx, broker)
}

// RunReporting stores the state of this process's consumers and of their connections, until ctx is done, so that operators see it: see
// [state.Reader.Consumers]. Then it notes that they have ended. broker is that of [Inbox.Receive], nil if there is none. waits returns the
// reason why Receive has not begun, nil if it has. It is a part of [Inbox.Run].
//
// It records that the consumers belong to the service only when the broker has accepted all of them, so that a refused start leaves nothing
// behind. A [*messaging.SourceError] means that a consumer belongs to another service.
func (i *Inbox) RunReporting(ctx context.Context, broker messaging.Subscriber, waits func() error) error {
	return i.process.RunReporting(ctx, broker, waits)
}

// Health returns nil if the consumers of this process are subscribed and make progress, and an error that says what is wrong otherwise: see
// [messaging.Loop.Health]. Without a broker it does not look at subscriptions.
func (i *Inbox) Health(limit time.Duration) error { return i.process.Health(limit) }

// Owners returns the services that the consumers of this database belong to, by the names of the consumers, see [OwnedBy].
func (i *Inbox) Owners(ctx context.Context) (map[string]string, error) { return i.process.Owners(ctx) }

// Installation returns the id of this database. The first call makes it. A copy or a replica has the id of its origin.
func (i *Inbox) Installation(ctx context.Context) (string, error) { return i.process.Installation(ctx) }

// KnownInstallation returns the id of this database, "" if it has none yet, and the SQL statement that gives it the id other: see
// [Inbox.Installation].
func (i *Inbox) KnownInstallation(ctx context.Context, other string) (id, takeOver string, err error) {
	return i.process.KnownInstallation(ctx, other)
}

// Identify adds the id of this database to the subscriptions of consumers that belong to a service. The broker adapter then refuses another
// database with a service of that name: see [messaging.InstallationError]. It waits for the database. [Inbox.Receive] calls it.
func (i *Inbox) Identify(ctx context.Context) error { return i.process.Identify(ctx) }

// Explain returns err. If a broker refused this database, the error also has the SQL statement by which this database takes the place of
// the other.
func (i *Inbox) Explain(err error) error { return i.process.Explain(err) }

// Consume registers h for the messages of a topic; [Inbox.Run] then calls it, once for each message and consumer. The name identifies the
// subscription and the entries of the inbox, so it must never change. h runs inside a unit, see [Inbox.Wrap], or with [Leased] under a
// lease. h may be a readmodel.Model of the same name, which has its own options for how messages are handled.
//
// Call it before Run. The error names the argument that cannot be used. A topic has at most one consumer of a name.
// Its full name is that of [uow.Manager.Topic].
func (i *Inbox) Consume(topic, name string, h messaging.Handler, opts ...Option) error {
	return i.consume(topic, name, opts, func(s *settings, final Option) (messaging.Handler, error) {
		model, isModel := h.(interface{ Generations() *Generations }) // a readmodel.Model
		switch {
		case h == nil:
			return nil, errors.New("the handler is nil")
		case isModel && (model.Generations().Name() != name || s.handles):
			return nil, fmt.Errorf("read model %q has its own consumer name and its own options for handling: "+
				"pass this name, and only options for receiving", model.Generations().Name())
		case isModel:
			return model.Generations(), nil
		case s.leased:
			return i.WrapLeased(name, h, final), nil
		default:
			return i.Wrap(name, h, final), nil
		}
	})
}

// defaultBatch is the most messages that a bulk writer gets in one call.
const defaultBatch = 100

// ConsumeBatch is [Inbox.Consume] for a bulk writer: it gets up to 100 messages at once, or as many as [Batch] says, in one
// unit of work.
func (i *Inbox) ConsumeBatch(topic, name string, fn BatchFunc, opts ...Option) error {
	return i.consume(topic, name, append([]Option{Batch(defaultBatch)}, opts...), func(s *settings, final Option) (messaging.Handler, error) {
		switch {
		case fn == nil:
			return nil, errors.New("the handler is nil")
		case s.leased:
			return nil, errors.New("ConsumeBatch runs its handler in a transaction, so it cannot have a lease: leave out the option Leased, or use Consume")
		default:
			return i.WrapBatch(name, fn, final), nil
		}
	})
}

func (i *Inbox) consume(topic, name string, opts []Option, wrap func(*settings, Option) (messaging.Handler, error)) error {
	topic = i.store.Units.Topic(topic)
	s := i.cfg.settings(opts)
	err := errors.Join(s.complete(topic, name), i.process.CheckNew(topic, name))
	// The name is checked before the handler is wrapped, because wrapping already registers the handler.
	c := &process.Consumer{Subscription: s.subscription, Receive: s.receive, StoresFirst: s.storesFirst, Unordered: s.unordered}
	c.Limit = operator.Limit{Attempts: s.retry.MaxAttempts, For: s.retry.GiveUpAfter, ForBuild: s.retry.DeployWait}
	if err == nil {
		c.Handler, err = wrap(&s, func(all *settings) { *all = s })
	}
	if err != nil {
		return fmt.Errorf("inbox: Consume(%q, %q): %w", topic, name, err)
	}
	_, c.ReadModel = c.Handler.(*Generations)
	i.process.Add(c)
	return nil
}

// ErrGivenUp means that a consumer has made a dead letter of a message that [Inbox.Await] waits for. Its effect does not come before an
// operator replays it.
var ErrGivenUp = errors.New("inbox: the consumer has given up")

// Await waits until the consumer has handled all events of the unit of work that t belongs to: after it, the caller that made a change
// finds it in the consumer's read model. Delayed events do not count, nor do events on topics to which [Inbox.Consume] never subscribed the
// consumer. For a consumer that also receives in another way, name the topics.
//
// It looks into the inbox, at first after 2 ms and later every 50 ms, until ctx ends. Always give ctx a deadline, and fall back to the read
// model as it is. The error wraps ctx's, [ErrGivenUp], or [event.ErrInvalid] if t is no token. A token from a client proves no right to
// read anything.
//
// Call it before a unit of work begins. Within a unit it asks in the unit's transaction, which stays open meanwhile and, above READ
// COMMITTED, never sees the entries.
func (i *Inbox) Await(ctx context.Context, consumer string, t uow.Token, topics ...string) error {
	topics = slices.Clone(topics)
	for n := range topics {
		topics[n] = i.store.Units.Topic(topics[n])
	}
	events, err := t.Events(topics...)
	if err != nil {
		return fmt.Errorf("inbox: Await: %w", err)
	}
	awaited := store.Awaited{Named: len(topics) > 0}
	for _, e := range events {
		awaited.Keys = append(awaited.Keys, store.MessageKey(e.Source, e.ID).String())
		awaited.Tenants, awaited.Sources = append(awaited.Tenants, e.TenantID), append(awaited.Sources, e.Source)
		awaited.Topics = append(awaited.Topics, e.Topic)
	}
	asking := ctx
	if _, within := uow.FromContext(ctx); within {
		// Cancelling a statement closes its connection, which would lose the caller's transaction. So the statement does not end with ctx.
		asking = context.WithoutCancel(ctx)
	}
	// The pauses grow from 2 to 50 ms: most events are handled within some milliseconds, and a late consumer must not be asked all the time.
	for attempt, last := 1, (store.Settlement{Due: len(events)}); len(events) > 0; attempt++ {
		is, err := i.table.Entries.Settled(asking, i.store.DB(ctx), consumer, awaited)
		switch {
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("inbox: Await: look for %d messages of %s: %w", len(events), consumer, pgerr.Explain(err))
		case is.Dead > 0:
			return fmt.Errorf("%w: Await: %d of %d events are dead letters of %s: see package inbox/dead", ErrGivenUp, is.Dead, is.Due, consumer)
		case err == nil && is.Handled == is.Due:
			return nil
		case err == nil:
			last = is
		}
		if err := backoff.Wait(ctx, backoff.Exponential(attempt, 2*time.Millisecond, 50*time.Millisecond)); err != nil {
			return fmt.Errorf("inbox: Await: %s has handled %d of %d events: %w", consumer, last.Handled, last.Due, err)
		}
	}
	return nil
}
