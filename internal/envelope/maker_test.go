package envelope_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
)

type placed struct {
	Total int64
}

func (placed) EventType() string { return "order.placed" }

// described brings metadata of its own.
type described struct{ placed }

func (described) EventType() string        { return "order.described" }
func (described) Metadata() event.Metadata { return shared }

var shared = event.Metadata{"a": "event", "b": "event"}

type order struct {
	event.Recorder
	id string
}

func (*order) AggregateType() string   { return "order" }
func (o *order) AggregateID() string   { return o.id }
func (*order) AggregateVersion() int64 { return 41 }

func aMaker() *envelope.Maker {
	r := event.NewRegistry()
	event.Register[placed](r, event.WithVersion(2))
	event.Register[described](r)
	return &envelope.Maker{Registry: r, Source: "shop", DefaultTenantID: "default", TopicPrefix: "shop."}
}

func recorded(e event.Event) event.Recorded {
	return event.Recorded{Event: e, At: time.Date(2026, 11, 21, 10, 0, 0, 123456789, time.FixedZone("", 3600))}
}

func TestRecordedIsComplete(t *testing.T) {
	got, err := aMaker().Recorded(t.Context(), &order{id: "7"}, 42, recorded(placed{Total: 1<<53 + 1}))
	require.NoError(t, err)
	id, err := uuid.Parse(got.ID)
	require.NoError(t, err)
	require.EqualValues(t, 7, id.Version())
	require.Equal(t, event.Envelope{
		ID: got.ID, Type: "order.placed", Source: "shop", SchemaVersion: 2, TenantID: "default",
		AggregateType: "order", AggregateID: "7", AggregateVersion: 42, Topic: "shop.order", RoutingKey: "7",
		// UTC, truncated to what PostgreSQL can store.
		OccurredAt:  time.Date(2026, 11, 21, 9, 0, 0, 123456000, time.UTC),
		ContentType: "application/json", Metadata: event.Metadata{}, Payload: []byte(`{"Total":9007199254740993}`),
	}, got)

	again, err := aMaker().Recorded(t.Context(), &order{id: "7"}, 42, recorded(placed{}))
	require.NoError(t, err)
	require.NotEqual(t, got.ID, again.ID)
	require.Greater(t, again.ID, got.ID, "ids grow with time")
}

func TestTopicOfAnAggregate(t *testing.T) {
	m := aMaker()
	m.Topic = func(e event.Envelope) string {
		require.Equal(t, "order.placed", e.Type)
		require.Equal(t, "7", e.AggregateID)
		require.Equal(t, "default", e.TenantID)
		return "mine-" + e.AggregateType
	}
	got, err := m.Recorded(t.Context(), &order{id: "7"}, 1, recorded(placed{}))
	require.NoError(t, err)
	require.Equal(t, "shop.mine-order", got.Topic)

	m.Topic = func(event.Envelope) string { return "" }
	_, err = m.Recorded(t.Context(), &order{id: "7"}, 1, recorded(placed{}))
	require.ErrorContains(t, err, "Topic is empty")
}

func TestRecordedErrorsNameTheAggregate(t *testing.T) {
	m := aMaker()
	_, err := m.Recorded(t.Context(), &order{id: "7"}, 1, recorded(nil))
	require.ErrorIs(t, err, event.ErrInvalid)
	require.ErrorContains(t, err, "order 7: ")

	m.Registry = event.NewRegistry()
	_, err = m.Recorded(t.Context(), &order{id: "7"}, 1, recorded(placed{}))
	require.ErrorIs(t, err, event.ErrUnknownType)
	m.Registry = nil
	_, err = m.Recorded(t.Context(), &order{id: "7"}, 1, recorded(placed{}))
	require.ErrorIs(t, err, event.ErrUnknownType)
	require.ErrorContains(t, err, "no registry is configured: set uow.Config.Registry to an event.NewRegistry() "+
		"(outbox.Config.Registry for Store.Add), and call event.Register[envelope_test.placed]")
}

func TestPayloadKinds(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload any
		kind    string
		media   string
		version int
		bytes   string
	}{
		{"event", placed{Total: 1}, "order.placed", "application/json", 2, `{"Total":1}`},
		{"pointer to an event", &placed{Total: 1}, "order.placed", "application/json", 2, `{"Total":1}`},
		{"raw JSON", json.RawMessage(` {"b":1,"a":1.0} `), "reports", "application/json", 1, ` {"b":1,"a":1.0} `},
		{"bytes", []byte{0, 255}, "reports", "application/octet-stream", 1, "\x00\xff"},
		{"no bytes", []byte(nil), "reports", "application/octet-stream", 1, ""},
		{"struct", struct{ A int }{1}, "reports", "application/json", 1, `{"A":1}`},
		{"map", map[string]any{"n": int64(1<<53 + 1)}, "reports", "application/json", 1, `{"n":9007199254740993}`},
		{"nil", nil, "reports", "application/json", 1, `null`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := aMaker().Payload(t.Context(), "reports", c.payload, nil)
			require.NoError(t, err)
			require.Equal(t, "shop.reports", got.Topic)
			require.Equal(t, c.kind, got.Type)
			require.Equal(t, c.media, got.ContentType)
			require.Equal(t, c.version, got.SchemaVersion)
			require.Equal(t, c.bytes, string(got.Payload))
			require.Equal(t, "default", got.TenantID)
			require.Empty(t, got.RoutingKey)
			require.Empty(t, got.OrderingKey())
			require.WithinDuration(t, time.Now(), got.OccurredAt, time.Minute)
			require.Zero(t, got.OccurredAt.Nanosecond()%1000)
		})
	}
}

func TestPayloadIsCopied(t *testing.T) {
	raw, text := []byte{1, 2}, json.RawMessage(`{"a":1}`)
	bytes, err := aMaker().Payload(t.Context(), "reports", raw, nil)
	require.NoError(t, err)
	doc, err := aMaker().Payload(t.Context(), "reports", text, nil)
	require.NoError(t, err)
	raw[0], text[1] = 9, 'x'
	require.Equal(t, []byte{1, 2}, bytes.Payload, "the caller used its buffer again")
	require.JSONEq(t, `{"a":1}`, string(doc.Payload))
}

func TestPayloadThatIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, topic string
		payload     any
		opts        []event.AddOption
		says        string
	}{
		{"not encodable", "reports", func() {}, nil, "topic reports: json: unsupported type"},
		{"not JSON", "reports", json.RawMessage(`{"a":`), nil, "event: Payload is a json.RawMessage, but not valid JSON"},
		{"no topic", "", []byte{}, nil, "event: Topic is empty"},
		{"a path", "persistent://x/y/z", []byte{}, nil, "event: Topic must not contain"},
		{"NUL", "a\x00", []byte{}, nil, "event: Topic contains a NUL"},
		{"id", "reports", []byte{}, []event.AddOption{event.WithID("7")}, "event: ID is not a UUID"},
		{"aggregate without an id", "reports", []byte{}, []event.AddOption{event.WithAggregate("order", "", 0)}, "event: AggregateID is empty"},
		{"version", "reports", []byte{}, []event.AddOption{event.WithSchema("", -1)}, "event: SchemaVersion is -1"},
		{"attempts", "reports", []byte{}, []event.AddOption{event.WithMaxAttempts(1 << 20)}, "event: Delivery.MaxAttempts is 1048576"},
		{"unregistered event", "reports", described{}, nil, "order.described"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := aMaker()
			if c.name == "unregistered event" {
				m.Registry = event.NewRegistry()
			}
			_, err := m.Payload(t.Context(), c.topic, c.payload, c.opts)
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestSourceIsRequired(t *testing.T) {
	m := aMaker()
	m.Source = ""
	_, err := m.Payload(t.Context(), "reports", []byte{}, nil)
	require.ErrorContains(t, err, "event: Source is empty: name this service in uow.Config.Source (ONCEBOX_SOURCE)")
}

func TestPayloadLimit(t *testing.T) {
	for _, c := range []struct{ max, size, limit int }{
		{0, envelope.DefaultMaxPayload, 0},
		{0, envelope.DefaultMaxPayload + 1, envelope.DefaultMaxPayload},
		{10, 10, 0},
		{10, 11, 10},
		{-1, 3 << 20, 0},
	} {
		m := aMaker()
		m.MaxPayload = c.max
		_, err := m.Payload(t.Context(), "reports", make([]byte, c.size), nil)
		if c.limit == 0 {
			require.NoError(t, err)
			continue
		}
		var invalid *event.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "Payload", invalid.Field)
		require.ErrorContains(t, err, "at most")
		require.ErrorContains(t, err, "(MaxPayload, ONCEBOX_MAX_PAYLOAD)")
	}
	m := aMaker()
	m.MaxPayload = 10
	_, err := m.Recorded(t.Context(), &order{id: "7"}, 1, recorded(placed{Total: 1 << 62}))
	require.ErrorIs(t, err, event.ErrInvalid, "recorded events have the same limit")
}

func TestTenantPrecedence(t *testing.T) {
	m, ctx := aMaker(), event.WithTenant(t.Context(), "context")
	for _, c := range []struct {
		want string
		ctx  context.Context
		opts []event.AddOption
	}{
		{"default", t.Context(), nil},
		{"context", ctx, nil},
		{"option", ctx, []event.AddOption{event.WithTenantID("option")}},
		{"context", ctx, []event.AddOption{event.WithTenantID("")}},
	} {
		got, err := m.Payload(c.ctx, "reports", []byte{}, c.opts)
		require.NoError(t, err)
		require.Equal(t, c.want, got.TenantID)
	}
	got, err := m.Recorded(ctx, &order{id: "7"}, 1, recorded(placed{}))
	require.NoError(t, err)
	require.Equal(t, "context", got.TenantID)
}

func TestRoutingKeyPrecedence(t *testing.T) {
	aggregate, order, route := event.WithAggregate("order", "7", 0), event.WithOrderingKey("order"), event.WithRoutingKey("route")
	for want, opts := range map[string][]event.AddOption{"": nil, "7": {aggregate}, "order": {aggregate, order}, "route": {aggregate, route}} {
		got, err := aMaker().Payload(t.Context(), "reports", []byte{}, opts)
		require.NoError(t, err)
		require.Equal(t, want, got.RoutingKey)
	}
}

// The broker keeps the order of its message key, so that has to be the ordering key.
func TestRoutingKeyBesideAnotherOrderingKey(t *testing.T) {
	order := event.WithOrderingKey("order")
	_, err := aMaker().Payload(t.Context(), "reports", []byte{}, []event.AddOption{order, event.WithRoutingKey("route")})
	require.ErrorIs(t, err, event.ErrInvalid)
	require.ErrorContains(t, err, `RoutingKey is "route" beside the ordering key "order"`)
	got, err := aMaker().Payload(t.Context(), "reports", []byte{}, []event.AddOption{order, event.WithRoutingKey("order")})
	require.NoError(t, err)
	require.Equal(t, "order", got.RoutingKey)
}

// A delayed event is not part of the order of its aggregate, on no side of the broker. An order that was asked for stays.
func TestOrderOfADelayedEvent(t *testing.T) {
	later := event.WithNotBefore(time.Date(2030, 1, 1, 9, 0, 0, 0, time.UTC))
	aggregate, id := event.WithAggregate("order", "7", 0), event.WithID("0190A6F0-0000-7000-8000-000000000001")
	const own = "0190a6f0-0000-7000-8000-000000000001"
	for name, c := range map[string]struct {
		opts                      []event.AddOption
		ordering, routing, stored string
	}{
		"of an aggregate":    {[]event.AddOption{later, aggregate, id}, own, own, ""},
		"with a routing key": {[]event.AddOption{later, aggregate, id, event.WithRoutingKey("r")}, own, "r", ""},
		"in an order":        {[]event.AddOption{later, aggregate, id, event.WithOrderingKey("k")}, "k", "k", "default|k"},
		"of no aggregate":    {[]event.AddOption{later, id}, "", "", ""},
		"not delayed":        {[]event.AddOption{aggregate, id}, "", "7", "default|order|7"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := aMaker().Payload(t.Context(), "reports", []byte{}, append(c.opts, event.WithTenantID("default")))
			require.NoError(t, err)
			require.Equal(t, c.ordering, got.Delivery.OrderingKey)
			require.Equal(t, c.routing, got.RoutingKey)
			require.Equal(t, c.stored, envelope.StoredKey(&got))
			require.Equal(t, c.ordering, envelope.GivenKey(c.stored, got.AggregateID, got.ID))
		})
	}
}

func TestOptionsWin(t *testing.T) {
	got, err := aMaker().Payload(t.Context(), "reports", placed{}, []event.AddOption{
		event.WithType("mine"), event.WithSchema("urn:schema", 9), event.WithContentType("text/plain"),
	})
	require.NoError(t, err)
	require.Equal(t, "mine", got.Type)
	require.Equal(t, "urn:schema", got.SchemaID)
	require.Equal(t, 9, got.SchemaVersion)
	require.Equal(t, "text/plain", got.ContentType)
}

func TestIDsHaveOneSpelling(t *testing.T) {
	const want = "01932f5e-7c00-7000-8000-00000000abcd"
	for _, id := range []string{
		want, strings.ToUpper(want), "urn:uuid:" + want, "{" + want + "}", strings.ReplaceAll(want, "-", ""),
	} {
		got, err := aMaker().Payload(t.Context(), "reports", []byte{}, []event.AddOption{event.WithID(id)})
		require.NoError(t, err)
		require.Equal(t, want, got.ID)
	}
}

func TestMetadataMerge(t *testing.T) {
	ctx := event.WithMetadata(t.Context(), event.Metadata{"a": "context", "c": "context", event.CorrelationID: "req"})
	got, err := aMaker().Recorded(ctx, &order{id: "7"}, 1, recorded(described{}))
	require.NoError(t, err)
	require.Equal(t, event.Metadata{"a": "event", "b": "event", "c": "context", event.CorrelationID: "req"}, got.Metadata,
		"the event's own wins over the context's")

	got, err = aMaker().Payload(ctx, "reports", described{}, []event.AddOption{event.WithHeader("a", "option")})
	require.NoError(t, err)
	require.Equal(t, "option", got.Metadata["a"])
	require.Equal(t, "event", got.Metadata["b"])

	got.Metadata["a"] = "changed"
	require.Equal(t, event.Metadata{"a": "event", "b": "event"}, shared, "the event's own map is not ours to change")
	require.Equal(t, "context", event.MetadataFrom(ctx)["a"])
}

func TestTraceContextOfTheSpan(t *testing.T) {
	const incoming = "00-11111111111111111111111111111111-2222222222222222-01"
	ctx := event.WithMetadata(t.Context(), event.Metadata{event.TraceParent: incoming, event.TraceState: "old=1"})
	got, err := aMaker().Payload(ctx, "reports", []byte{}, nil)
	require.NoError(t, err)
	require.Equal(t, incoming, got.Metadata[event.TraceParent], "without a span: the one that came in")

	ctx, span := sdktrace.NewTracerProvider().Tracer("test").Start(ctx, "request")
	defer span.End()
	got, err = aMaker().Payload(ctx, "reports", []byte{}, nil)
	require.NoError(t, err)
	sc := trace.SpanContextFromContext(ctx)
	require.Equal(t, "00-"+sc.TraceID().String()+"-"+sc.SpanID().String()+"-01", got.Metadata[event.TraceParent])
	require.NotContains(t, got.Metadata, event.TraceState, "the state of another trace")

	got, err = aMaker().Payload(ctx, "reports", []byte{}, []event.AddOption{event.WithHeader(event.TraceParent, incoming)})
	require.NoError(t, err)
	require.Equal(t, incoming, got.Metadata[event.TraceParent], "an option wins here as well")
}

func TestMetadataIsValidated(t *testing.T) {
	ctx := event.WithMetadata(t.Context(), event.Metadata{"a": "\x00"})
	_, err := aMaker().Payload(ctx, "reports", []byte{}, nil)
	require.ErrorIs(t, err, event.ErrInvalid)
	require.ErrorContains(t, err, "Metadata[a]")
}

// padder makes payloads ten bytes longer.
type padder struct{ saw []event.Envelope }

func (p *padder) Seal(_ context.Context, env *event.Envelope) ([]byte, string, error) {
	p.saw = append(p.saw, *env)
	return append([]byte("0123456789"), env.Payload...), "k1", nil
}

func (*padder) Open(_ context.Context, env *event.Envelope, _ string) ([]byte, error) {
	return env.Payload[10:], nil
}

func TestWhateverIsStoredIsSealed(t *testing.T) {
	p := &padder{}
	r := event.NewRegistry(event.WithSealer(p))
	event.Register[placed](r)
	m := aMaker()
	m.Registry, m.MaxPayload = r, 22

	got, err := m.Recorded(t.Context(), &order{id: "7"}, 1, recorded(placed{Total: 1}))
	require.NoError(t, err)
	require.Equal(t, `0123456789{"Total":1}`, string(got.Payload))
	require.Equal(t, event.ContentTypeSealed, got.ContentType)
	require.Equal(t, event.Metadata{event.SealedKey: "k1", event.SealedContentType: "application/json"}, got.Metadata)
	for _, payload := range []any{placed{}, json.RawMessage(`{}`), []byte{1}, map[string]int{}} {
		got, err := m.Payload(t.Context(), "reports", payload, nil)
		require.NoError(t, err)
		require.Equal(t, event.ContentTypeSealed, got.ContentType)
	}
	for _, env := range p.saw {
		require.NoError(t, env.Validate(), "it is complete")
	}
	_, err = m.Payload(t.Context(), "reports", make([]byte, 13), nil)
	require.ErrorContains(t, err, "has 23 bytes, at most 22 are allowed", "what counts is what is stored")

	_, err = m.Payload(t.Context(), "reports", []byte{1}, []event.AddOption{event.WithTenantID("\x00")})
	require.ErrorIs(t, err, event.ErrInvalid)
	require.Len(t, p.saw, 6, "the sealer sees valid envelopes only")
}
