package messaging

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/skipped"
)

// errWithheld takes the place of an error that may quote what was sealed: dead letters keep the text of their error.
var errWithheld = errors.New("the payload does not fit the type of the event; the details are left out of this error, because the payload was sealed")

// ErrNoHandler means that a router has no handler for a message's type.
var ErrNoHandler = errors.New("messaging: no handler for the event type")

// Router is a [Handler] that decodes each message and gives it to the handler of its type. Messages of a type without a handler are
// skipped: settled, counted (oncebox.router.skipped), and logged once per type, so that a producer that adds an event stops no consumer.
// [Router.Ignore] names types that need no line in the log. With [Router.Strict] messages of all other such types wait.
//
// A message of a newer schema version than is registered is an error that wraps [event.ErrNewerVersion], and not a permanent one: a
// build that knows it may be on its way.
//
// Sealed events are opened first. While a key cannot be read, the message is tried again. An event whose key was erased is settled, because
// nobody can ever read it: see [Router.Erased].
type Router struct {
	registry   *event.Registry
	middleware []Middleware
	chain      Handler // route within middleware
	handlers   map[string]func(context.Context, event.Event) error
	erased     HandlerFunc
	ignored    map[string]bool
	strict     bool
	unhandled  unhandled
	alone      func() *instruments // for messages that no consumer brings: the global one
}

// NewRouter returns a router that decodes with r.
func NewRouter(r *event.Registry) *Router {
	router := &Router{
		registry: r, handlers: map[string]func(context.Context, event.Event) error{}, ignored: map[string]bool{},
		unhandled: unhandled{types: map[string]struct{}{}}, alone: sync.OnceValue(func() *instruments { return newInstruments(&ConsumerConfig{}) }),
	}
	router.erased, router.chain = router.passOver, HandlerFunc(router.route)
	return router
}

// instruments are that of the consumer that handles the message.
func (r *Router) telemetry(ctx context.Context) *instruments {
	if t, ok := ctx.Value(telemetryKey{}).(*instruments); ok {
		return t
	}
	return r.alone()
}

// Handle makes fn the handler of T's event type. T must be registered before. It panics if it is not, or has a handler
// already: mistakes in the program, found at its start.
func Handle[T event.Event](r *Router, fn func(ctx context.Context, e T) error) {
	goType := reflect.TypeFor[T]()
	var sample T
	if goType.Kind() == reflect.Pointer {
		sample = reflect.New(goType.Elem()).Interface().(T) //nolint:forcetypeassert // the type is T by construction
	}
	name := sample.EventType()
	if _, ok := r.registry.Name(name); !ok {
		panic(fmt.Sprintf("messaging: Handle[%s]: %q is not registered: call event.Register[%s] before", goType, name, goType))
	}
	if _, taken := r.handlers[name]; taken {
		panic(fmt.Sprintf("messaging: Handle[%s]: %q has a handler already", goType, name))
	}
	r.handlers[name] = func(ctx context.Context, e event.Event) error {
		typed, ok := e.(T)
		if !ok {
			return Permanent(fmt.Errorf("messaging: event %q is registered as %T, its handler takes %s: "+
				"let the handler take %T, or register the other type", name, e, goType, e))
		}
		return fn(ctx, typed)
	}
}

// Ignore settles messages of these types without handling them.
func (r *Router) Ignore(types ...string) {
	for _, t := range types {
		r.ignored[t] = true
	}
}

// Strict has messages of a type without a handler fail with [ErrNoHandler], unless [Router.Ignore] names the type. Package inbox keeps
// such a message, and those behind it in its key, until a build that handles the type is deployed. Without it, what an
// old process receives while a handler for a new type is being deployed is skipped.
func (r *Router) Strict() { r.strict = true }

// Erased has fn handle the messages whose handler would not understand them any more, because the key of their payload was
// erased. m is as it came, sealed. Default: a line in the log of the consumer, and the message is settled.
func (r *Router) Erased(fn HandlerFunc) { r.erased = fn }

func (r *Router) passOver(ctx context.Context, m *Message) error {
	skipped.Add(ctx, 1)
	r.telemetry(ctx).log.InfoContext(ctx, "oncebox: message settled without being handled: the key that its payload was sealed with was erased",
		"topic", m.Topic, "type", m.Type, "id", m.ID, "tenant", m.TenantID, "key", m.Metadata[event.SealedKey])
	return nil
}

// Use puts middleware around the router. It sees all messages that can be read, also those of types without a handler. The first one is the
// outermost, and a later call adds within. Call it before the first message comes.
func (r *Router) Use(middleware ...Middleware) {
	r.middleware = append(r.middleware, middleware...)
	r.chain = Chain(HandlerFunc(r.route), r.middleware...)
}

// Handle passes m through the middleware, decodes it and calls the handler of its type.
func (r *Router) Handle(ctx context.Context, m *Message) error {
	if err := Unreadable(m); err != nil {
		return err
	}
	return r.chain.Handle(ctx, m)
}

func (r *Router) route(ctx context.Context, m *Message) error {
	name, known := r.registry.Name(m.Type)
	if !known {
		name = m.Type
	}
	h := r.handlers[name]
	if h == nil {
		return r.skip(ctx, name, m)
	}
	e, err := r.decode(ctx, &m.Envelope)
	if errors.Is(err, event.ErrErased) {
		return r.erased(ctx, m)
	}
	if err != nil {
		return err
	}
	return h(ctx, e)
}

// skip settles a message that has no handler, or returns an error if it must have one.
func (r *Router) skip(ctx context.Context, name string, m *Message) error {
	switch {
	case r.ignored[name] || r.ignored[m.Type]:
		skipped.Add(ctx, 1)
		return nil
	case r.strict:
		return fmt.Errorf("%w: type %q on topic %s: register a handler with Handle, or call Router.Ignore", ErrNoHandler, m.Type, m.Topic)
	}
	skipped.Add(ctx, 1)
	r.unhandled.note(ctx, r.telemetry(ctx), m)
	return nil
}

// decode returns a permanent error if trying again leads nowhere.
func (r *Router) decode(ctx context.Context, env *event.Envelope) (event.Event, error) {
	opened, err := r.registry.Open(ctx, env)
	if err == nil {
		e, err := r.registry.Decode(opened)
		if errors.Is(err, event.ErrNewerVersion) { // it quotes nothing of the payload
			return nil, err
		}
		if decode, ok := errors.AsType[*event.DecodeError](err); ok && opened != env {
			err = &event.DecodeError{Type: decode.Type, Version: decode.Version, Err: errWithheld}
		}
		return e, Permanent(err)
	}
	if _, never := errors.AsType[*event.DecodeError](err); never {
		err = Permanent(err)
	}
	return nil, err
}

// maxSkipped bounds what is remembered of the log: types are what senders say.
const maxSkipped = 1000

// unhandled counts the messages that a router has no handler for, and logs the first one of each type, where the consumer's telemetry goes.
type unhandled struct {
	mu    sync.Mutex
	types map[string]struct{}
}

func (u *unhandled) note(ctx context.Context, t *instruments, m *Message) {
	t.skipped.Add(ctx, 1, metric.WithAttributes(attribute.String("topic", m.Topic)))
	u.mu.Lock()
	_, noted := u.types[m.Type]
	if !noted && len(u.types) < maxSkipped {
		u.types[m.Type] = struct{}{}
	}
	u.mu.Unlock()
	if !noted {
		t.log.WarnContext(ctx, "oncebox: messages of this type are settled without being handled, because this consumer has no handler for it: "+
			"register a handler, or name the type in Router.Ignore if that is intended. With Router.Strict such messages "+
			"wait", "consumer", t.consumer, "topic", m.Topic, "type", m.Type, "id", m.ID)
	}
}
