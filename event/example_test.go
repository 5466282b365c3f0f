package event_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"

	"github.com/oncebox/oncebox/event"
)

// Two events of an order. EventType is a name on the wire: it stays when the Go type is renamed.
type (
	OrderPlaced struct {
		OrderID string `json:"order_id"`
		Total   int64  `json:"total"`
	}
	OrderCancelled struct {
		OrderID string `json:"order_id"`
	}
)

func (OrderPlaced) EventType() string    { return "order.placed" }
func (OrderCancelled) EventType() string { return "order.cancelled" }

// Order is an aggregate: plain Go with a Recorder in it.
type Order struct {
	event.Recorder `bun:"-"`

	ID      string `bun:",pk"`
	Version int64
}

func (*Order) AggregateType() string     { return "order" }
func (o *Order) AggregateID() string     { return o.ID }
func (o *Order) AggregateVersion() int64 { return o.Version }

func PlaceOrder(id string, total int64) *Order {
	o := &Order{ID: id}
	o.Record(OrderPlaced{OrderID: id, Total: total})
	return o
}

func (o *Order) Cancel() { o.Record(OrderCancelled{OrderID: o.ID}) }

// The domain records what happened. It knows neither database nor broker.
func Example() {
	order := PlaceOrder("o-1", 500)
	order.Cancel()
	for _, r := range order.RecordedEvents() {
		fmt.Printf("%s %+v\n", r.Event.EventType(), r.Event)
	}
	// Output:
	// order.placed {OrderID:o-1 Total:500}
	// order.cancelled {OrderID:o-1}
}

func ExampleRecorder() {
	order := PlaceOrder("o-1", 500)
	fmt.Println(len(order.RecordedEvents()))
	order.ClearEvents() // the unit of work does this after COMMIT
	fmt.Println(len(order.RecordedEvents()))
	// Output:
	// 1
	// 0
}

func ExampleRegister() {
	registry := event.NewRegistry()
	event.Register[OrderPlaced](registry)

	encoded, err := registry.Encode(OrderPlaced{OrderID: "o-1", Total: 500})
	fmt.Println(encoded.Type, encoded.ContentType, string(encoded.Payload), err)

	_, err = registry.Encode(OrderCancelled{})
	fmt.Println(errors.Is(err, event.ErrUnknownType), err)
	// Output:
	// order.placed application/json {"order_id":"o-1","total":500} <nil>
	// true event: unknown event type: "order.cancelled" (event_test.OrderCancelled): call event.Register[event_test.OrderCancelled] at start
}

// An event that was stored under an earlier name and in an earlier form is still understood.
func ExampleRegistry_Decode() {
	registry := event.NewRegistry()
	event.Register[OrderPlaced](registry,
		event.WithAliases("order.created"),
		event.WithVersion(2),
		event.WithUpcaster(1, func([]byte) ([]byte, error) {
			return []byte(`{"order_id":"o-1","total":0}`), nil // version 1 had no total
		}))

	ev, err := registry.Decode(&event.Envelope{Type: "order.created", SchemaVersion: 1, Payload: []byte(`{"order_id":"o-1"}`)})
	fmt.Printf("%#v %v\n", ev, err)

	_, err = registry.Decode(&event.Envelope{Type: "order.placed", SchemaVersion: 3})
	fmt.Println(err)
	// Output:
	// event_test.OrderPlaced{OrderID:"o-1", Total:0} <nil>
	// event: decode order.placed version 3: newer than version 2, which this build knows
}

// What a stored event is in the current version, before it is decoded.
func ExampleRegistry_Upcast() {
	registry := event.NewRegistry()
	event.Register[OrderPlaced](registry, event.WithVersion(2), event.WithUpcaster(1, func([]byte) ([]byte, error) {
		return []byte(`{"order_id":"o-1","total":0}`), nil
	}))
	payload, err := registry.Upcast(&event.Envelope{Type: "order.placed", SchemaVersion: 1, Payload: []byte(`{"order_id":"o-1"}`)})
	fmt.Println(string(payload), err)
	// Output: {"order_id":"o-1","total":0} <nil>
}

func ExampleRegistry_Types() {
	registry := event.NewRegistry()
	event.Register[OrderPlaced](registry, event.WithAliases("order.created"), event.WithVersion(2))
	event.Register[OrderCancelled](registry)
	for _, t := range registry.Types() {
		fmt.Println(t.Name, t.Version, t.ContentType, t.Aliases, t.Go)
	}
	// Output:
	// order.cancelled 1 application/json [] event_test.OrderCancelled
	// order.placed 2 application/json [order.created] event_test.OrderPlaced
}

func ExampleRegistry_Encode() {
	registry := event.NewRegistry()
	event.Register[OrderCancelled](registry, event.WithVersion(2))
	encoded, _ := registry.Encode(OrderCancelled{OrderID: "o-1"})
	fmt.Println(encoded.Type, encoded.SchemaVersion, string(encoded.Payload))
	// Output: order.cancelled 2 {"order_id":"o-1"}
}

func ExampleRegistry_Name() {
	registry := event.NewRegistry()
	event.Register[OrderPlaced](registry, event.WithAliases("order.created"))
	fmt.Println(registry.Name("order.created"))
	// Output: order.placed true
}

// What is put on the context travels with every event of the request.
func ExampleWithMetadata() {
	ctx := event.WithMetadata(context.Background(), event.Metadata{event.CorrelationID: "req-7"})
	ctx = event.WithMetadata(ctx, event.Metadata{"channel": "web"})
	fmt.Println(event.MetadataFrom(ctx))
	// Output: map[channel:web correlation_id:req-7]
}

func ExampleWithTenant() {
	ctx := event.WithTenant(context.Background(), "acme")
	fmt.Println(event.TenantFrom(ctx))
	// Output: acme
}

// Rows with equal ordering keys leave in the order of their commits.
func ExampleEnvelope_OrderingKey() {
	placed := event.Envelope{TenantID: "acme", AggregateType: "order", AggregateID: "o-1"}
	fmt.Println(placed.OrderingKey())

	manual := event.Envelope{TenantID: "acme", Delivery: event.Delivery{OrderingKey: "nightly"}}
	fmt.Println(manual.OrderingKey())
	// Output:
	// acme|order|o-1
	// acme|nightly
}

func ExampleEnvelope_Validate() {
	env := event.Envelope{ID: "7", Type: "order.placed", Source: "shop", TenantID: "acme", Topic: "persistent://order"}
	fmt.Println(env.Validate())
	// Output:
	// event: ContentType is empty
	// event: Topic must not contain "/", "%" or ".."
	// event: OccurredAt is zero
}

func ExampleValidateIdentifier() {
	fmt.Println(event.ValidateIdentifier("TenantID", "acme"))
	fmt.Println(event.ValidateIdentifier("TenantID", "acme\x00"))
	// Output:
	// <nil>
	// event: TenantID contains a NUL or another control character
}

func ExampleAddOption() {
	env := event.Envelope{Topic: "reports"}
	for _, option := range []event.AddOption{event.WithType("report.wanted"), event.WithOrderingKey("nightly")} {
		option(&env)
	}
	fmt.Println(env.Type, env.Delivery.OrderingKey)
	// Output: report.wanted nightly
}

// keyring seals with AES-GCM and one key per tenant. In examples/encryption the keys are in a table.
type keyring map[string]cipher.AEAD

func (k keyring) Seal(_ context.Context, env *event.Envelope) ([]byte, string, error) {
	return k[env.TenantID].Seal(nil, nil, env.Payload, []byte(env.ID)), env.TenantID, nil
}

func (k keyring) Open(_ context.Context, env *event.Envelope, keyID string) ([]byte, error) {
	key, ok := k[keyID]
	if !ok {
		return nil, event.ErrErased
	}
	return key.Open(nil, nil, env.Payload, []byte(env.ID))
}

// With a sealer, payloads are encrypted wherever they are stored. To forget the key is to erase them all.
func ExampleWithSealer() {
	block, _ := aes.NewCipher([]byte("a key of 32 bytes, from a vault."))
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	keys := keyring{"acme": aead}
	registry := event.NewRegistry(event.WithSealer(keys))
	event.Register[OrderPlaced](registry)

	ctx := context.Background()
	env := event.Envelope{ID: "7", Type: "order.placed", TenantID: "acme", Payload: []byte(`{"order_id":"o-1","total":500}`)}
	_ = registry.Seal(ctx, &env) // the flush does this
	fmt.Println(env.ContentType, env.Metadata[event.SealedKey], len(env.Payload))

	opened, _ := registry.Open(ctx, &env) // a messaging.Router does this
	fmt.Println(registry.Decode(opened))

	delete(keys, "acme")
	_, err := registry.Open(ctx, &env)
	fmt.Println(errors.Is(err, event.ErrErased))
	// Output:
	// application/vnd.oncebox.sealed acme 58
	// {o-1 500} <nil>
	// true
}

// A handler that is not called by a messaging.Router opens what it wants to read.
func ExampleRegistry_Open() {
	registry := event.NewRegistry()
	env := event.Envelope{Type: "order.placed", Payload: []byte(`{}`)}
	opened, err := registry.Open(context.Background(), &env)
	fmt.Println(opened == &env, err) // it is not sealed

	env.Metadata = event.Metadata{event.SealedKey: "acme/1"}
	_, err = registry.Open(context.Background(), &env)
	fmt.Println(err)
	// Output:
	// true <nil>
	// event: decode order.placed version 1: sealed with key "acme/1": make the registry with event.WithSealer
}

// What makes outbox rows by itself seals them as the framework does.
func ExampleRegistry_Seal() {
	registry := event.NewRegistry() // without a sealer nothing changes
	env := event.Envelope{Type: "order.placed", ContentType: event.ContentTypeJSON, Payload: []byte(`{}`)}
	fmt.Println(registry.Seal(context.Background(), &env), env.ContentType, string(env.Payload))
	// Output: <nil> application/json {}
}
