package event_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/event"
)

// RefundPaid is in its third version, and says who paid it.
type RefundPaid struct {
	Cents int64  `json:"cents"`
	Clerk string `json:"-"`
}

func (RefundPaid) EventType() string          { return "refund.paid" }
func (RefundPaid) SchemaVersion() int         { return 3 }
func (r RefundPaid) Metadata() event.Metadata { return event.Metadata{"clerk": r.Clerk} }

func ExampleVersioned() {
	registry := event.NewRegistry()
	event.Register[RefundPaid](registry)
	encoded, err := registry.Encode(RefundPaid{Cents: 500})
	fmt.Println(encoded.Type, encoded.SchemaVersion, err)
	// Output: refund.paid 3 <nil>
}

// Metadata of the event's own travels beside that of the context, and wins over it.
func ExampleDescribed() {
	var e event.Event = RefundPaid{Cents: 500, Clerk: "ann"}
	if described, ok := e.(event.Described); ok {
		fmt.Println(described.Metadata())
	}
	// Output: map[clerk:ann]
}

// base64JSON is JSON that survives a channel which is not clean.
type base64JSON struct{ event.JSON }

func (base64JSON) ContentType() string { return "application/json; encoding=base64" }

func (c base64JSON) Marshal(v any) ([]byte, error) {
	plain, err := c.JSON.Marshal(v)
	return base64.StdEncoding.AppendEncode(nil, plain), err
}

func (c base64JSON) Unmarshal(data []byte, v any) error {
	plain, err := base64.StdEncoding.AppendDecode(nil, data)
	return errors.Join(err, c.JSON.Unmarshal(plain, v))
}

// A type may have a codec of its own.
func ExampleCodec() {
	registry := event.NewRegistry()
	event.Register[OrderPlaced](registry, event.WithCodec(base64JSON{}))
	encoded, _ := registry.Encode(OrderPlaced{OrderID: "o-1", Total: 500})
	fmt.Println(encoded.ContentType, string(encoded.Payload))

	decoded, err := registry.Decode(&event.Envelope{Type: encoded.Type, Payload: encoded.Payload})
	fmt.Printf("%+v %v\n", decoded, err)
	// Output:
	// application/json; encoding=base64 eyJvcmRlcl9pZCI6Im8tMSIsInRvdGFsIjo1MDB9
	// {OrderID:o-1 Total:500} <nil>
}

// The error about bytes that do not fit names the type and version that was expected.
func ExampleDecodeError() {
	registry := event.NewRegistry()
	event.Register[OrderPlaced](registry)
	_, err := registry.Decode(&event.Envelope{Type: "order.placed", Payload: []byte(`{"total":"much"}`)})
	if bad, ok := errors.AsType[*event.DecodeError](err); ok {
		fmt.Println(bad.Type, bad.Version)
	}
	// Output: order.placed 1
}

// What is refused names its field.
func ExampleInvalidError() {
	err := event.ValidateIdentifier("TenantID", "a\nb")
	if invalid, ok := errors.AsType[*event.InvalidError](err); ok {
		fmt.Println(invalid.Field, errors.Is(err, event.ErrInvalid))
	}
	// Output: TenantID true
}

// Options say what no aggregate is there to say: what it is, in which order it leaves, and when.
func ExampleAddOption_delivery() {
	env := event.Envelope{Topic: "reminders"}
	for _, option := range []event.AddOption{
		event.WithType("reminder.due"),
		event.WithAggregate("customer", "c-1", 0),
		event.WithTenantID("acme"),
		event.WithHeader("channel", "sms"),
		event.WithNotBefore(time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC)),
		event.WithExpiry(time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)),
		event.WithMaxAttempts(3),
	} {
		option(&env)
	}
	fmt.Println(env.Type, env.OrderingKey(), env.Metadata)
	fmt.Println(env.Delivery.NotBefore, env.Delivery.ExpiresAt, env.Delivery.MaxAttempts)
	// Output:
	// reminder.due acme|customer|c-1 map[channel:sms]
	// 2030-01-01 09:00:00 +0000 UTC 2030-01-02 00:00:00 +0000 UTC 3
}

// An event that was made elsewhere keeps its id and its schema. The dedup key is the producer's: a second run of the import
// announces nothing a second time.
func ExampleWithDedupKey() {
	env := event.Envelope{Topic: "invoices"}
	for _, option := range []event.AddOption{
		event.WithID("01932f5e-7c00-7000-8000-000000000001"),
		event.WithSchema("urn:billing:invoice", 2),
		event.WithContentType("application/xml"),
		event.WithRoutingKey("customer-7"),
		event.WithDedupKey("import 2026-11-21, line 17"),
	} {
		option(&env)
	}
	fmt.Println(env.ID, env.SchemaID, env.SchemaVersion, env.ContentType)
	fmt.Println(env.RoutingKey, "|", env.Delivery.DedupKey)
	// Output:
	// 01932f5e-7c00-7000-8000-000000000001 urn:billing:invoice 2 application/xml
	// customer-7 | import 2026-11-21, line 17
}

// A copy can be changed, also that of nothing.
func ExampleMetadata_Clone() {
	var none event.Metadata
	md := none.Clone()
	md["channel"] = "web"
	fmt.Println(md, none)
	// Output: map[channel:web] map[]
}
