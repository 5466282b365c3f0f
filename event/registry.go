package event

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
)

var (
	// ErrUnknownType means that the type of an event is not registered. For a producer this is a bug, which shows when the unit of work writes its
	// events. A consumer keeps the message until a build is deployed that knows the type.
	ErrUnknownType = errors.New("event: unknown event type")

	// ErrNewerVersion means that the event has a newer schema version than the registered one. The message is kept until a build that knows
	// the version is deployed.
	ErrNewerVersion = errors.New("event: newer schema version")
)

// DecodeError means that the bytes do not fit the registered type.
type DecodeError struct {
	// Type and Version are the type and schema version of the event that cannot be read.
	Type    string
	Version int
	// Err is the error of the codec or the upcaster, [ErrNewerVersion], or an error about the sealed payload.
	Err error
}

func (e *DecodeError) Error() string {
	return fmt.Sprintf("event: decode %s version %d: %v", e.Type, e.Version, e.Err)
}

// Unwrap returns the codec's or the upcaster's error.
func (e *DecodeError) Unwrap() error { return e.Err }

// newerError is the newest version that the registry knows.
type newerError int

func (e newerError) Error() string {
	return fmt.Sprintf("newer than version %d, which this build knows", int(e))
}

func (newerError) Is(target error) bool { return target == ErrNewerVersion }

// Registry holds the events of one service: their names, versions and codecs. It is a value and not global, so that two services in one test do not
// share it. Register everything at the start; reading is safe for concurrent use.
type Registry struct {
	sealer Sealer // nil: payloads are not sealed
	mu     sync.RWMutex
	byName map[string]*entry
}

type entry struct {
	name      string
	version   int
	goType    reflect.Type
	codec     Codec
	aliases   []string
	upcasters map[int]func([]byte) ([]byte, error)
	decode    func(Codec, []byte) (Event, error)
}

// RegistryOption changes how a registry works.
type RegistryOption func(*Registry)

// NewRegistry returns an empty registry.
func NewRegistry(opts ...RegistryOption) *Registry {
	r := &Registry{byName: map[string]*entry{}}
	for _, opt := range opts {
		opt(r)
	}
	return r
}

// RegisterOption changes how one type is registered.
type RegisterOption func(*entry)

// WithVersion sets the current schema version. Default: that of a [Versioned] event, else 1.
func WithVersion(n int) RegisterOption { return func(e *entry) { e.version = n } }

// WithAliases sets earlier names of the type. Stored events with these names can still be read.
func WithAliases(names ...string) RegisterOption { return func(e *entry) { e.aliases = names } }

// WithUpcaster adds a function that turns a payload of version from into one of version from+1. Upcasters run one after the other up to the current
// version; a step without an upcaster leaves the payload as it is.
func WithUpcaster(from int, fn func(payload []byte) ([]byte, error)) RegisterOption {
	return func(e *entry) { e.upcasters[from] = fn }
}

// WithCodec sets the codec of the type. Default: [JSON].
func WithCodec(c Codec) RegisterOption { return func(e *entry) { e.codec = c } }

// Register makes T known under the name that its EventType returns for the zero value. T may be a struct or a pointer to one. It panics if the name
// or an alias is empty or taken, if the version is below 1, or if an upcaster does not start from an older version. These are mistakes in the
// program, found at its start. [RegisterAll] registers several types.
func Register[T Event](r *Registry, opts ...RegisterOption) {
	r.register(reflect.TypeFor[T](), opts)
}

// RegisterAll makes the types of events known, each as [Register] does without options. The values of samples do not matter.
//
//	event.RegisterAll(registry, OrderPlaced{}, OrderCancelled{})
func RegisterAll(r *Registry, samples ...Event) {
	for _, sample := range samples {
		goType := reflect.TypeOf(sample)
		if goType == nil {
			panic("event: RegisterAll: a sample is nil: pass a value of each type, such as OrderPlaced{}")
		}
		r.register(goType, nil)
	}
}

func (r *Registry) register(goType reflect.Type, opts []RegisterOption) {
	if goType.Kind() == reflect.Interface {
		panic(fmt.Sprintf("event: Register[%s]: register the types that implement the interface", goType))
	}
	sample := pointed(goType, blank(goType))
	e := &entry{
		name: sample.EventType(), version: 1, goType: goType, codec: JSON{},
		upcasters: map[int]func([]byte) ([]byte, error){},
		decode: func(c Codec, data []byte) (Event, error) {
			to := blank(goType)
			err := c.Unmarshal(data, to.Interface())
			return pointed(goType, to), err
		},
	}
	if v, ok := sample.(Versioned); ok {
		e.version = v.SchemaVersion()
	}
	for _, opt := range opts {
		opt(e)
	}
	if e.version < 1 {
		panic(fmt.Sprintf("event: Register[%s]: version %d: versions count from 1", goType, e.version))
	}
	for from := range e.upcasters {
		if from < 1 || from >= e.version {
			panic(fmt.Sprintf("event: Register[%s]: an upcaster from version %d, but the current version is %d", goType, from, e.version))
		}
	}
	r.add(e)
}

// blank returns a pointer to an empty event to decode into.
func blank(goType reflect.Type) reflect.Value {
	if goType.Kind() == reflect.Pointer {
		return reflect.New(goType.Elem())
	}
	return reflect.New(goType)
}

// pointed returns the event that a pointer of blank points to, or the pointer itself if the type is a pointer.
func pointed(goType reflect.Type, to reflect.Value) Event {
	if goType.Kind() != reflect.Pointer {
		to = to.Elem()
	}
	return to.Interface().(Event) //nolint:forcetypeassert // the type is an Event by construction
}

func (r *Registry) add(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range append([]string{e.name}, e.aliases...) {
		if err := ValidateIdentifier("EventType", name); name == "" || err != nil {
			panic(fmt.Sprintf("event: Register[%s]: event type %q is empty or not an identifier", e.goType, name))
		}
		if taken, ok := r.byName[name]; ok {
			panic(fmt.Sprintf("event: Register[%s]: event type %q is taken by %s", e.goType, name, taken.goType))
		}
		r.byName[name] = e
	}
}

// Encode encodes ev with the codec of its type. The envelope has Type, SchemaVersion, ContentType and Payload, and nothing else. The error
// wraps [ErrUnknownType] if the type was not registered, or was registered for another Go type, and [ErrInvalid] if ev is nil.
func (r *Registry) Encode(ev Event) (Envelope, error) {
	if v := reflect.ValueOf(ev); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return Envelope{}, &InvalidError{"Event", fmt.Sprintf("is nil (%T)", ev)}
	}
	name := ev.EventType()
	e, ok := r.lookup(name)
	if !ok {
		return Envelope{}, fmt.Errorf("%w: %q (%T): call event.Register[%T] at start", ErrUnknownType, name, ev, ev)
	}
	if got := reflect.TypeOf(ev); got != e.goType && (got.Kind() != reflect.Pointer || got.Elem() != e.goType) {
		return Envelope{}, fmt.Errorf("%w: %q is registered for %s, not for %s: give one of the two another EventType, or register the type that is emitted",
			ErrUnknownType, name, e.goType, got)
	}
	payload, err := e.codec.Marshal(ev)
	if err != nil {
		return Envelope{}, fmt.Errorf("event: encode %s: %w", name, err)
	}
	return Envelope{Type: e.name, SchemaVersion: e.version, ContentType: e.codec.ContentType(), Payload: payload}, nil
}

// Decode returns the event of env as the Go type that is registered for its type or alias. Open a sealed event with [Registry.Open] first. The error
// wraps [ErrUnknownType], or is a [*DecodeError]; that wraps [ErrNewerVersion] if the schema version is too new.
func (r *Registry) Decode(env *Envelope) (Event, error) {
	e, payload, err := r.upcast(env)
	if err != nil {
		return nil, err
	}
	ev, err := e.decode(e.codec, payload)
	if err != nil {
		return nil, &DecodeError{env.Type, max(env.SchemaVersion, 1), err}
	}
	return ev, nil
}

// Upcast returns the payload of env in the current version, which [Registry.Decode] passes to the codec. Its errors are those of Decode.
func (r *Registry) Upcast(env *Envelope) ([]byte, error) {
	_, payload, err := r.upcast(env)
	return payload, err
}

func (r *Registry) upcast(env *Envelope) (*entry, []byte, error) {
	e, ok := r.lookup(env.Type)
	if !ok {
		return nil, nil, fmt.Errorf("%w: %q", ErrUnknownType, env.Type)
	}
	version := max(env.SchemaVersion, 1)
	if version > e.version {
		return nil, nil, &DecodeError{env.Type, version, newerError(e.version)}
	}
	if keyID := env.Metadata[SealedKey]; keyID != "" {
		return nil, nil, &DecodeError{env.Type, version, fmt.Errorf("sealed with key %q: call Registry.Open before", keyID)}
	}
	payload := env.Payload
	for v := version; v < e.version; v++ {
		up := e.upcasters[v]
		if up == nil {
			continue
		}
		var err error
		if payload, err = up(payload); err != nil {
			return nil, nil, &DecodeError{env.Type, v, fmt.Errorf("upcast to version %d: %w", v+1, err)}
		}
	}
	return e, payload, nil
}

// Type describes a registered event type.
type Type struct {
	// Name is the current name; Aliases are earlier names.
	Name    string
	Aliases []string
	// Version is the current schema version.
	Version int
	// ContentType is the media type that the codec writes.
	ContentType string
	// Go is the registered Go type, a struct or a pointer to one.
	Go reflect.Type
}

// Types lists the registered types, sorted by name. It is for tools such as package eventtest.
func (r *Registry) Types() []Type {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var types []Type
	for name, e := range r.byName {
		if name == e.name {
			types = append(types, Type{e.name, slices.Clone(e.aliases), e.version, e.codec.ContentType(), e.goType})
		}
	}
	slices.SortFunc(types, func(a, b Type) int { return strings.Compare(a.Name, b.Name) })
	return types
}

// Name returns the current name of a type or alias, and whether it is known.
func (r *Registry) Name(name string) (string, bool) {
	e, ok := r.lookup(name)
	if !ok {
		return "", false
	}
	return e.name, true
}

func (r *Registry) lookup(name string) (*entry, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e, ok := r.byName[name]
	return e, ok
}
