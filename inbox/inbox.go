package inbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/consumers"
	"github.com/oncebox/oncebox/inbox/dead"
	"github.com/oncebox/oncebox/inbox/internal/process"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/internal/audit"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/internal/presence"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/operator/failures"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// Inbox remembers which consumer has handled which message. It is safe for concurrent use.
type Inbox struct {
	cfg   Config
	store *store.Handle // the statements on all tables
	table store.Tables  // the tables that a message passes

	messages   metric.Int64Counter
	silent     metric.Int64Counter // calls of Config.OnDead that failed
	dead       *dead.Letters
	audit      *audit.Log
	attributes sync.Map // consumer and outcome -> []metric.AddOption
	state      *state.Reader
	parked     *parked.Messages
	handles    *consumers.Consumers
	process    *process.Consumers

	// woken gets a token when a message was parked here.
	woken chan struct{}

	// runners is the number of RunParked calls that run.
	runners atomic.Int64

	mu       sync.Mutex
	handlers map[handlerKey]*wrapped
	models   []*Generations
	stores   map[Subscription]messaging.BatchHandler // they store messages for a consumer, without a broker
	logged   map[logged]struct{}                     // lines that are written to the log once
}

// DefaultTenantID is the tenant of messages that name none. It is part of their key for ever, so there is no setting for it.
const DefaultTenantID = store.DefaultTenantID

// handlerKey finds the handler of a parked message. Topic "" stands for all topics.
type handlerKey struct{ consumer, topic string }

func (k handlerKey) compare(other handlerKey) int {
	return cmp.Or(cmp.Compare(k.consumer, other.consumer), cmp.Compare(k.topic, other.topic))
}

// New returns an inbox whose entries are made in the units of m.
func New(m *uow.Manager, cfg *Config) *Inbox {
	c := cfg.WithDefaults()
	c.Telemetry = c.Telemetry.Or(m.Telemetry())
	meter := otelx.Meter(c.Telemetry.MeterProvider, "inbox")
	i := &Inbox{
		cfg: c,
		store: &store.Handle{
			Units: m, Patient: pgsql.New(c.Schema, c.Pooler, store.Words()...), Log: otelx.Logger(c.Telemetry.Logger), Owner: uuid.NewString(),
			Process:     presence.Signature(),
			ParkedLease: c.ParkedLease, LeaseTTL: c.LeaseTTL, LockTimeout: c.LockTimeout, PollInterval: c.PollInterval, NoHistory: c.NoHistory,
		},
		messages: otelx.Counter(meter, "oncebox.inbox.messages", "Messages that came to a consumer, by outcome"),
		silent:   otelx.Counter(meter, "oncebox.inbox.unannounced", "Dead letters for which Config.OnDead failed, by consumer"),
		woken:    make(chan struct{}, 1), handlers: map[handlerKey]*wrapped{}, logged: map[logged]struct{}{}, stores: map[Subscription]messaging.BatchHandler{},
	}
	i.store.Wake = i.wake
	i.store.AnswerWithin(store.AnswerTimeout)
	i.table = store.NewTables(i.store)
	i.process = process.New(i.store)
	i.dead = dead.New(i.store, c.MaxPayload)
	i.audit = &audit.Log{Part: operator.PartInbox, Run: i.store.AdHoc(), Retention: c.AuditRetention}
	i.state = state.New(i.store, meter)
	i.handles = consumers.New(i.store, i.state)
	i.parked = parked.New(i.store, i.continuesAfterDead)
	return i
}

// DeadLetter is a message that a consumer gave up: see [Config.OnDead] and package inbox/dead.
type DeadLetter = dead.Letter

// Dead returns the dead letters, for operators.
func (i *Inbox) Dead() *dead.Letters { return i.dead }

// Parked returns the parked messages, for operators.
func (i *Inbox) Parked() *parked.Messages { return i.parked }

// Failures returns what fails at consumers, grouped by cause: messages that are tried again, and dead letters.
func (i *Inbox) Failures() *failures.Groups { return parked.Failures(i.store, i.parked, i.dead) }

// Consumers returns what operators do with consumers: pause, resume, forget.
func (i *Inbox) Consumers() *consumers.Consumers { return i.handles }

// State returns the reader of what runs and what waits, for operators.
func (i *Inbox) State() *state.Reader { return i.state }

// Handle is for package readmodel.
func (i *Inbox) Handle() *store.Handle { return i.store }

// Telemetry returns where logs, traces and metrics go, for packages without a setting of their own, such as the console. Its Logger is not nil.
func (i *Inbox) Telemetry() telemetry.Config {
	return telemetry.Config{Logger: i.store.Log, TracerProvider: i.cfg.Telemetry.TracerProvider, MeterProvider: i.cfg.Telemetry.MeterProvider}
}

// Wrap returns a handler that calls next once for each message; see the package documentation. The name of the consumer is part of the key:
// it must stay the same over releases, and different consumers must have different ones.
//
// next runs inside the unit: [uow.FromContext] and [uow.Manager.DB] give it the transaction. Its result decides what becomes of the
// message, as the package documentation says. [Inbox.RunParked] calls the same next for parked messages.
//
// It panics if the name is empty or not an identifier, or ends like balances@1, which names a generation of a read model: a
// mistake in the program, found at its start.
func (i *Inbox) Wrap(consumer string, next messaging.Handler, opts ...Option) messaging.Handler {
	return i.wrap(consumer, next, nil, opts)
}

// WrapBatch is [Inbox.Wrap] for a handler of several messages. The consumer gives it as many as there are, up to its
// BatchSize.
func (i *Inbox) WrapBatch(consumer string, next BatchFunc, opts ...Option) messaging.BatchHandler {
	alone := messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
		return next(ctx, []*messaging.Message{m})
	})
	return i.wrap(consumer, alone, &bulkWriter{write: next}, opts)
}

// WrapLeased is [Inbox.Wrap] for handlers that call outside: mail, payment, somebody's API. next runs without a transaction, so none stays
// open meanwhile. Instead this process holds a lease of the message's key, which it renews; other messages of the key wait, in every
// process. If a process dies, another process takes the message over when [Config.LeaseTTL] is past. If the process was only slow, the
// context of its handler is cancelled with the cause [ErrLeaseLost].
//
// next runs at least once for each message. When it runs again, step.Call skips the calls to the outside that were made already, and
// [StepInUnit] the local changes; both refuse to write for a process that has lost its lease. [Key] returns an idempotency key for the
// other side.
//
// What next returns decides as with Wrap, a panic included, and a failed message is parked in the same way. There is no unit in
// its context: to emit an event it needs a StepInUnit. Messages are handled one by one, whatever the size of the batches.
func (i *Inbox) WrapLeased(consumer string, next messaging.Handler, opts ...Option) messaging.Handler {
	w := i.wrap(consumer, next, nil, append(slices.Clone(opts), Leased()))
	return messaging.HandlerFunc(w.Handle) // hides HandleBatch: leased messages are handled one by one
}

func (i *Inbox) wrap(name string, next messaging.Handler, bulk *bulkWriter, opts []Option) *wrapped {
	if err := event.ValidateIdentifier("consumer", name); name == "" || err != nil || store.Family(name) != name {
		panic(fmt.Sprintf("inbox: Wrap: the consumer's name %q is empty, not an identifier, or that of a generation of a read model, as balances@1", name))
	}
	w := i.newWrapped(name, next, nil, opts)
	if w.bulk = bulk; bulk != nil {
		bulk.within = w.of.middleware
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers[handlerKey{name, w.of.subscription.Topic}] = w
	return w
}

// newWrapped returns next with the inbox around it. model is the generation of a read model that it handles, nil if it is not of one.
func (i *Inbox) newWrapped(name string, next messaging.Handler, model *store.Membership, opts []Option) *wrapped {
	of := &consumer{box: i, name: name, model: model, settings: i.cfg.settings(opts)}
	w := &wrapped{of: of, letters: letters{of}, next: named{store.Family(name), messaging.Chain(next, of.middleware...)}}
	// Only parked messages need this: a message from the broker gets its span and metrics from the consumer that receives it.
	w.parked = messaging.Instrument(w.next, &messaging.ConsumerConfig{Name: store.Family(name), Telemetry: i.Telemetry()})
	guarded := i.cfg.CrashGuard
	if guarded >= 0 {
		guarded = max(guarded, of.maxInFlight)
	}
	of.unproved.Store(int64(guarded))
	i.countFromZero(name)
	return w
}

// Generations returns the handlers of a read model: see readmodel.New. It panics if the name is empty or not an identifier, or ends like that of a
// generation, as balances@1 does.
func (i *Inbox) Generations(name string, next messaging.Handler, opts ...Option) *Generations {
	if err := event.ValidateIdentifier("name", name); name == "" || err != nil || store.Family(name) != name {
		panic(fmt.Sprintf("inbox: the name of the read model %q is empty, not an identifier, or ends like that of a generation, as in balances@1", name))
	}
	g := &Generations{box: i, name: name, next: next, opts: opts}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.models = append(i.models, g)
	return g
}

// Publisher returns the publisher of a relay that has no broker: it stores each message for each consumer that is subscribed to its topic
// ([Inbox.Subscribe]), in this process or another one. A stored message counts as published. [Inbox.RunParked] handles stored messages like
// parked ones: a handler that fails or takes long delays no other consumer and no other key.
func (i *Inbox) Publisher() messaging.Publisher { return &publisher{box: i} }

// handlerOf returns the handler of a parked message, nil if it is not in this process.
func (i *Inbox) handlerOf(consumer, topic string) *wrapped {
	i.mu.Lock()
	defer i.mu.Unlock()
	if w := i.handlers[handlerKey{consumer, topic}]; w != nil {
		return w
	}
	return i.handlers[handlerKey{consumer, ""}]
}

// continuesAfterDead reports whether the messages behind a dead letter of a consumer go on, as far as this process knows.
// Without a handler here the setting of this process is the best guess.
func (i *Inbox) continuesAfterDead(consumer, topic string) bool {
	if w := i.handlerOf(consumer, topic); w != nil {
		return w.of.continueAfterDead
	}
	return i.cfg.ContinueAfterDead
}

// consumers returns the consumers whose parked messages can be handled here.
func (i *Inbox) consumers() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var names []string
	for key := range i.handlers {
		names = append(names, key.consumer)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// topicsOf returns the topics whose parked messages of a consumer can be handled here, nil for all topics. A key without a recorded topic
// may be taken by any process.
func (i *Inbox) topicsOf(consumer string) []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	topics := []string{""}
	for key := range i.handlers {
		switch {
		case key.consumer != consumer:
		case key.topic == "":
			return nil
		default:
			topics = append(topics, key.topic)
		}
	}
	slices.Sort(topics)
	return topics
}

// handled returns the consumers and topics whose parked messages can be handled here. Topic "" stands for all topics.
func (i *Inbox) handled() (consumers, topics []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	keys := make([]handlerKey, 0, len(i.handlers))
	for key := range i.handlers {
		if !i.process.IsUnowned(key.consumer) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, handlerKey.compare) // all processes lock in this order, or two could deadlock
	for _, key := range keys {
		consumers, topics = append(consumers, key.consumer), append(topics, key.topic)
	}
	return consumers, topics
}

// wake makes [Inbox.RunParked] look for keys at once.
func (i *Inbox) wake() {
	select {
	case i.woken <- struct{}{}:
	default:
	}
}

// count counts the outcome of a message.
func (i *Inbox) count(ctx context.Context, consumer, outcome string) {
	// The count and the span say the same, so a trace shows without the metrics what became of the message.
	i.countN(ctx, consumer, outcome, 1)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(attribute.String("oncebox.inbox.outcome", outcome))
	}
}

func (i *Inbox) countN(ctx context.Context, consumer, outcome string, n int64) {
	attributes, ok := i.attributes.Load([2]string{consumer, outcome})
	if !ok { // made once: they would be sorted and copied for each message
		set := attribute.NewSet(attribute.String("consumer", store.Family(consumer)), attribute.String("outcome", outcome))
		attributes, _ = i.attributes.LoadOrStore([2]string{consumer, outcome}, []metric.AddOption{metric.WithAttributeSet(set)})
	}
	i.messages.Add(ctx, n, attributes.([]metric.AddOption)...) //nolint:forcetypeassert // nothing else is stored
	i.process.Count(consumer, outcome, n)
}

// The outcomes of a message that oncebox.inbox.messages counts.
const (
	outcomeHandled     = "handled"
	outcomeSkipped     = "skipped"
	outcomeDuplicate   = "duplicate"
	outcomeParked      = "parked"
	outcomeFailed      = "failed"
	outcomeDead        = "dead"
	outcomeInterrupted = "interrupted"
	outcomeLeased      = "leased"
	outcomeLocked      = "locked"
)

// countFromZero reports the counters of a consumer as 0 before anything is counted, see otelx.Started.
func (i *Inbox) countFromZero(consumer string) {
	for _, outcome := range []string{
		outcomeHandled, outcomeSkipped, outcomeDuplicate, outcomeParked, outcomeFailed, outcomeDead, outcomeInterrupted, outcomeLeased, outcomeLocked,
	} {
		i.countN(context.Background(), consumer, outcome, 0)
	}
	if i.cfg.OnDead != nil {
		i.silent.Add(context.Background(), 0, ofConsumer(consumer))
	}
}

func ofConsumer(consumer string) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("consumer", store.Family(consumer)))
}

// first reports whether a line has not been written yet, as far as is remembered, and remembers it.
func (i *Inbox) first(line logged) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, written := i.logged[line]
	if !written && len(i.logged) < maxLogged {
		i.logged[line] = struct{}{}
	}
	return !written
}
