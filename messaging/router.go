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

// errWithheld replaces an error that may quote a decrypted payload. Dead letters keep the text of their error, so it would stand there in the clear.
var errWithheld = errors.New("the payload does not fit the type of the event; the details are left out of this error, because the payload was sealed")

// ErrNoHandler means that a router has no handler for a message's type.
var ErrNoHandler = errors.New("messaging: no handler for the event type")

// Router is a [Handler] that decodes each message and gives it to the handler of its type. A message of a type without a handler is skipped: it is
// settled, counted (oncebox.router.skipped), and logged once per type. So a producer that adds an event type stops no consumer. [Router.Ignore] names
// types that need no line in the log. With [Router.Strict] such a message waits, unless its type is ignored.
//
// A schema version that is newer than the registered one is an error that wraps [event.ErrNewerVersion]. It is not permanent, because a build that
// knows the version may be deployed soon.
//
// Sealed (encrypted) events are opened first. While the key cannot be read, the message is tried again. An event whose key was erased is settled,
// because it can never be read again: see [Router.Erased].
type Router struct {
	registry   *event.Registry
	middleware []Middleware
	chain      Handler // the middleware, with route inside
	handlers   map[string]func(context.Context, event.Event) error
	erased     HandlerFunc
	ignored    map[string]bool
	strict     bool
	unhandled  unhandled
	alone      func() *instruments // global telemetry, for messages that did not come through a consumer
}

// NewRouter returns a router that decodes events with r.
func NewRouter(r *event.Registry) *Router {
	router := &Router{
		registry: r, handlers: map[string]func(context.Context, event.Event) error{}, ignored: map[string]bool{},
		unhandled: unhandled{types: map[string]struct{}{}}, alone: sync.OnceValue(func() *instruments { return newInstruments(&ConsumerConfig{}) }),
	}
	router.erased, router.chain = router.passOver, HandlerFunc(router.route)
	return router
}

// telemetry returns the instruments of the consumer that handles the message.
func (r *Router) telemetry(ctx context.Context) *instruments {
	if t, ok := ctx.Value(telemetryKey{}).(*instruments); ok {
		return t
	}
	return r.alone()
}

// Handle makes fn the handler of T's event type. It panics if T is not registered, or if the type has a handler already, so that these mistakes are
// found at the start of the program.
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

// Ignore makes the router settle messages of these types without handling or logging them.
func (r *Router) Ignore(types ...string) {
	for _, t := range types {
		r.ignored[t] = true
	}
}

// Strict makes a message of a type without a handler fail with [ErrNoHandler], unless [Router.Ignore] names the type. Package inbox then keeps the
// message, and later ones of its key, until a build with a handler is deployed. Without Strict an old process that is still running skips messages of
// a type that only the new build handles.
func (r *Router) Strict() { r.strict = true }

// Erased makes fn the handler of messages whose encryption key was erased, so that no other handler can read them. m is still encrypted. Default: the
// message is settled, with a line in the consumer's log.
func (r *Router) Erased(fn HandlerFunc) { r.erased = fn }

func (r *Router) passOver(ctx context.Context, m *Message) error {
	skipped.Add(ctx, 1)
	r.telemetry(ctx).log.InfoContext(ctx, "oncebox: message settled without being handled: the key that its payload was sealed with was erased",
		"topic", m.Topic, "type", m.Type, "id", m.ID, "tenant", m.TenantID, "encryption_key", m.Metadata[event.SealedKey])
	return nil
}

// Use wraps the router in middleware. Middleware sees every readable message, also those of types without a handler. The first one is the outermost;
// a later call adds inside the earlier ones. Call Use before the first message arrives.
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

// decode returns the message's event. The error is permanent if another try cannot succeed.
func (r *Router) decode(ctx context.Context, env *event.Envelope) (event.Event, error) {
	opened, err := r.registry.Open(ctx, env)
	if err == nil {
		e, err := r.registry.Decode(opened)
		if errors.Is(err, event.ErrNewerVersion) { // this error quotes nothing of the payload
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

// maxSkipped bounds the number of types that are remembered as logged. Senders choose the types, so there could be any number.
const maxSkipped = 1000

// unhandled counts messages that no handler takes, and logs the first one of each type. Metric and log line go to the consumer's telemetry.
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
