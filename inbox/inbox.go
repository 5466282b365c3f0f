package inbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox/internal/store"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/internal/audit"
	"github.com/oncebox/oncebox/internal/deadletter"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/internal/pgsql"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
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
	dead       *deadletter.Box[DeadLetter]
	audit      *audit.Log
	attributes sync.Map // consumer and outcome -> metric.MeasurementOption
	state      *state.Reader
	parked     *parked.Messages

	// woken gets a token when a message was parked here.
	woken chan struct{}

	// runners is the number of RunParked calls that run.
	runners atomic.Int64

	mu         sync.Mutex
	handlers   map[handlerKey]*wrapped
	models     []*Generations
	subscribed map[string]subscribed                   // by topic
	stores     map[Subscription]messaging.BatchHandler // they store messages for a consumer, without a broker
	consuming  []*consumer
	receiving  bool
	asked      map[string]time.Time // by consumer: when it was last asked whether any process handles its parked messages
	paused     map[string]bool      // by consumer
	pausedAt   map[string]time.Time // since when
	owned      map[string]bool      // by consumer: it is known to belong to its service
	logged     map[logged]struct{}  // lines that are written to the log once
}

// DefaultTenant is the tenant of messages that name none. It is part of their key for ever, so there is no setting for it.
const DefaultTenant = store.DefaultTenant

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
			Units: m, Patient: pgsql.New(c.Schema, c.Pooler), Log: otelx.Logger(c.Telemetry.Logger), Owner: uuid.NewString(),
			ParkedLease: c.ParkedLease, LeaseTTL: c.LeaseTTL, LockTimeout: c.LockTimeout,
		},
		messages: otelx.Counter(meter, "oncebox.inbox.messages", "Messages that came to a consumer, by outcome"),
		silent:   otelx.Counter(meter, "oncebox.inbox.unannounced", "Dead letters that were not announced because Config.OnDead failed, by consumer"),
		woken:    make(chan struct{}, 1), handlers: map[handlerKey]*wrapped{},
		logged: map[logged]struct{}{}, subscribed: map[string]subscribed{}, stores: map[Subscription]messaging.BatchHandler{},
		paused: map[string]bool{}, pausedAt: map[string]time.Time{}, owned: map[string]bool{}, asked: map[string]time.Time{},
	}
	i.store.Wake = i.wake
	i.store.AnswerWithin(store.AnswerTimeout)
	i.table = store.NewTables(i.store)
	i.dead = i.newDead()
	i.audit = &audit.Log{Part: operator.PartInbox, Run: i.store.AdHoc(), Retention: c.AuditRetention}
	i.state = state.New(i.store, meter)
	i.parked = parked.New(i.store, i.continuesAfterDead)
	return i
}

// Parked returns the parked messages, for operators.
func (i *Inbox) Parked() *parked.Messages { return i.parked }

// State returns the reader of what runs and what waits, for operators.
func (i *Inbox) State() *state.Reader { return i.state }

// Handle is for package readmodel.
func (i *Inbox) Handle() *store.Handle { return i.store }

// Telemetry returns where logs, traces and metrics go, for packages that show the inbox and have no setting of their own, the console for
// example. The Logger is not nil.
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
	return i.wrap(consumer, &wrapped{next: next}, opts)
}

func (i *Inbox) wrap(consumer string, w *wrapped, opts []Option) *wrapped {
	if err := event.ValidateIdentifier("consumer", consumer); consumer == "" || err != nil || store.Family(consumer) != consumer {
		panic(fmt.Sprintf("inbox: Wrap: the consumer's name %q is empty, not an identifier, or that of a generation of a read model, as balances@1", consumer))
	}
	i.equip(consumer, w, opts)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handlers[handlerKey{consumer, w.subscription.Topic}] = w
	return w
}

// equip sets the fields of w besides its handler.
func (i *Inbox) equip(consumer string, w *wrapped, opts []Option) {
	w.box, w.consumer = i, consumer
	leased := w.leased
	w.settings = i.settings(opts)
	w.leased = w.leased || leased
	if w.bulk != nil {
		w.bulk.within = w.middleware
	}
	w.next = named{store.Family(consumer), messaging.Chain(w.next, w.middleware...)}
	w.parked = messaging.Instrument(w.next, &messaging.ConsumerConfig{
		Name:      store.Family(consumer),
		Telemetry: telemetry.Config{Logger: i.store.Log, TracerProvider: i.cfg.Telemetry.TracerProvider, MeterProvider: i.cfg.Telemetry.MeterProvider},
	})
	guarded := i.cfg.CrashGuard
	if guarded >= 0 {
		guarded = max(guarded, w.maxInFlight)
	}
	w.unproved.Store(int64(guarded))
	i.countFromZero(consumer)
}

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
func (i *Inbox) continuesAfterDead(consumer, topic string) bool {
	if w := i.handlerOf(consumer, topic); w != nil {
		return w.continueAfterDead
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

// wake makes [Inbox.RunParked] look for keys at once.
func (i *Inbox) wake() {
	select {
	case i.woken <- struct{}{}:
	default:
	}
}

// count counts the outcome of a message.
func (i *Inbox) count(ctx context.Context, consumer, outcome string) {
	i.countN(ctx, consumer, outcome, 1)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(attribute.String("oncebox.inbox.outcome", outcome))
	}
}

func (i *Inbox) countN(ctx context.Context, consumer, outcome string, n int64) {
	key := [2]string{consumer, outcome}
	attributes, ok := i.attributes.Load(key)
	if !ok { // made once: they would be sorted and copied for each message
		set := attribute.NewSet(attribute.String("consumer", store.Family(consumer)), attribute.String("outcome", outcome))
		attributes, _ = i.attributes.LoadOrStore(key, metric.WithAttributeSet(set))
	}
	i.messages.Add(ctx, n, attributes.(metric.MeasurementOption)) //nolint:forcetypeassert // nothing else is stored
}
