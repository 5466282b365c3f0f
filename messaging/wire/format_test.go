package wire_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/nightly"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/wire"
)

// bindings are those of the adapters, by broker.
func bindings() map[string]wire.Binding {
	return map[string]wire.Binding{
		"pulsar, kafka": {Prefix: "ce_"},
		"nats":          {Prefix: "ce-", ContentType: "ce-datacontenttype", CarriesKey: true, Encodes: true},
		"rabbitmq":      {Prefix: "cloudEvents_", CarriesKey: true, MaxName: 255},
	}
}

func full() event.Envelope {
	return event.Envelope{
		ID: "id-1", Type: "order.placed", Source: "shop", SchemaID: "https://schemas.example/order", SchemaVersion: 3, TenantID: "t1",
		AggregateType: "order", AggregateID: "o-7", AggregateVersion: 4, Sequence: 99, Topic: "order", RoutingKey: "o 7",
		OccurredAt:  time.Date(2025, 1, 2, 3, 4, 5, 678_901_000, time.FixedZone("", 3600)),
		ContentType: "application/json; charset=utf-8",
		Metadata: event.Metadata{
			event.CorrelationID: "c1", event.CausationID: "c2", event.TraceParent: "tp", event.TraceState: "ts",
			"region": "Köln", "ce-extension": "x", "ce-id": "y", "two words": "50%",
		},
		Payload:  []byte(`{"a":1}`),
		Delivery: event.Delivery{OrderingKey: "o 7", DedupKey: "stays at home", MaxAttempts: 1, ExpiresAt: time.Now()},
	}
}

// CloudEvents NATS binding: prefix ce-, datacontenttype like any attribute, values percent-encoded.
func TestPropertiesOfNATS(t *testing.T) {
	env := full()
	require.Equal(t, map[string]string{
		"ce-specversion": "1.0", "ce-id": "id-1", "ce-type": "order.placed", "ce-source": "shop", "ce-subject": "o-7",
		"ce-time": "2025-01-02T02:04:05.678901Z", "ce-datacontenttype": "application/json;%20charset=utf-8",
		"ce-dataschema": "https://schemas.example/order", "ce-tenantid": "t1", "ce-aggregatetype": "order", "ce-aggregateversion": "4",
		"ce-sequence": "99", "ce-schemaversion": "3", "ce-correlationid": "c1", "ce-causationid": "c2", "ce-orderingkey": "o%207",
		"ce-partitionkey": "o%207", "traceparent": "tp", "tracestate": "ts",
		"meta-region": "K%C3%B6ln", "ce-extension": "x", "meta-ce-id": "y", "meta-two%20words": "50%25",
	}, wire.NewFormat(bindings()["nats"]).Properties(nil, &env))
}

// AMQP allows 255 bytes for the name of a header (AMQP 0-9-1, section 4.2.5.5).
func TestMetadataWithALongName(t *testing.T) {
	long := strings.Repeat("k", 251)
	env := event.Envelope{ID: "1", Metadata: event.Metadata{long: "v", "short": "s"}}
	require.Equal(t, map[string]string{
		"cloudEvents_specversion": "1.0", "cloudEvents_id": "1", "meta-short": "s", "cloudEvents_metadata": `{"` + long + `":"v"}`,
	}, wire.NewFormat(bindings()["rabbitmq"]).Properties(nil, &env))
}

func TestOnlyWhatIsSetIsWritten(t *testing.T) {
	format := wire.NewFormat(wire.Binding{Prefix: "ce_"})
	props := map[string]string{"ce_type": "of the message before"}
	require.Equal(t, map[string]string{"ce_specversion": "1.0", "ce_id": "1"}, format.Properties(props, &event.Envelope{ID: "1", RoutingKey: "k"}))
	require.Equal(t, 2+len("ce_specversion1.0ce_id")-1, wire.Size(props))
}

func received(env *event.Envelope, b wire.Binding) *wire.Received {
	r := &wire.Received{
		Topic: env.Topic, Properties: wire.NewFormat(b).Properties(nil, env), Payload: env.Payload,
		Place: func() string { return "12" }, Origin: "cluster/orders", Published: time.UnixMilli(1_700_000_000_123),
	}
	if !b.CarriesKey {
		r.Key = env.RoutingKey
	}
	return r
}

func TestEveryEnvelopeComesBack(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"", "ce_id", "meta-", "meta-x", "traceparent", "ce_x", "ce_orderingkey", "content-type", "a\x00b", "\xff", "%", "%41", "a%2", "_x41_", "\r\n", " a ",
	}))
	key := rapid.OneOf(text, rapid.SampledFrom([]string{
		"ce_correlationid", "correlation_id", "causation_id", "ce-causationid", "tracestate", "meta-correlation_id", "ce_specversion", "ce-time",
		"cloudEvents_metadata", "cloudEvents_partitionkey", "ce-partitionkey", "ce-%41", "a:b", strings.Repeat("é", 200),
	}))
	micros := rapid.Int64Range(time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC).UnixMicro(), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMicro())
	for name, binding := range bindings() {
		t.Run(name, func(t *testing.T) {
			valid := func(s string) string { // JSON carries long names, and only Unicode
				if binding.MaxName > 0 {
					return strings.ToValidUTF8(s, "?")
				}
				return s
			}
			nightly.Check(t, 100, 30_000, func(t *rapid.T) {
				metadata := event.Metadata{}
				for k, v := range rapid.MapOf(key, text).Draw(t, "metadata") {
					metadata[valid(k)] = valid(v)
				}
				sent := event.Envelope{
					ID: "1" + text.Draw(t, "id"), Type: text.Draw(t, "type"), Source: text.Draw(t, "source"), SchemaID: text.Draw(t, "schema"),
					SchemaVersion: rapid.IntRange(0, 1<<30).Draw(t, "version"), TenantID: text.Draw(t, "tenant"),
					AggregateType: text.Draw(t, "aggregate type"), AggregateID: text.Draw(t, "aggregate id"),
					AggregateVersion: rapid.Int64Min(0).Draw(t, "aggregate version"), Sequence: rapid.Int64Min(0).Draw(t, "sequence"),
					Topic: "order", RoutingKey: text.Draw(t, "key"), OccurredAt: time.UnixMicro(micros.Draw(t, "time")).UTC(),
					ContentType: text.Draw(t, "content type"), Metadata: metadata,
					Payload: rapid.SliceOf(rapid.Byte()).Draw(t, "payload"), Delivery: event.Delivery{OrderingKey: text.Draw(t, "ordering key")},
				}
				r := received(&sent, binding)
				list := wire.NewFormat(binding).Append(nil, &sent)
				require.Len(t, list, len(r.Properties), "two properties have the same name: %v", list)
				require.Equal(t, list, wire.NewFormat(binding).Append(nil, &sent), "the order is the same")
				if binding.Encodes {
					requireHeaders(t, r.Properties)
				}
				require.Equal(t, sent, wire.NewFormat(binding).Envelope(r))
			})
		})
	}
}

// requireHeaders checks that names and values can be headers (RFC 9110, section 5): a broker would change or refuse others.
func requireHeaders(t *rapid.T, props map[string]string) {
	for name, value := range props {
		for _, c := range []byte(name) {
			require.True(t, c > ' ' && c <= '~' && !strings.ContainsRune("\"(),/:;<=>?@[\\]{}", rune(c)), "name %q", name)
		}
		for _, c := range []byte(value) {
			require.True(t, c > ' ' && c <= '~', "value %q", value)
		}
	}
}

func TestForeignMessageGetsAnID(t *testing.T) {
	format := wire.NewFormat(bindings()["nats"])
	r := &wire.Received{
		Topic: "order", Place: func() string { return "12" }, Origin: "cluster/orders", Published: time.UnixMilli(1_700_000_000_123), Payload: []byte("x"),
		Properties: map[string]string{
			"color": "50%41", "ce-shade": "dark%20red", "meta-size": "%4C", "ce-sequence": "not a number", "ce-aggregateversion": "-1", "ce-specversion": "0.3",
			"ce-schemaversion": "2147483648", "ce-subject": "a%", "ce-time": "yesterday",
		},
	}
	env := format.Envelope(r)
	require.Equal(t, event.Envelope{
		ID: "order@12", Type: "order", Source: "cluster/orders", Topic: "order", AggregateID: "a%", OccurredAt: time.UnixMilli(1_700_000_000_123).UTC(),
		Payload: []byte("x"),
		Metadata: event.Metadata{
			"color": "50%41", "ce-shade": "dark red", "size": "L", "ce-sequence": "not a number", "ce-aggregateversion": "-1", "ce-specversion": "0.3",
			"ce-schemaversion": "2147483648", "ce-time": "yesterday",
		},
	}, env)
	require.Equal(t, env, format.Envelope(r), "it comes again as the same message")

	r.Time = time.UnixMilli(1_600_000_000_001)
	require.EqualValues(t, 1_600_000_000_001, format.Envelope(r).OccurredAt.UnixMilli(), "the broker's own time of the event")
}

func TestForeignLongMetadataStays(t *testing.T) {
	format := wire.NewFormat(bindings()["rabbitmq"])
	env := format.Envelope(&wire.Received{
		Topic: "order", Place: func() string { return "1" }, Properties: map[string]string{"cloudEvents_metadata": "no JSON"},
	})
	require.Equal(t, event.Metadata{"cloudEvents_metadata": "no JSON"}, env.Metadata)
}

func TestUnreadableMessageKeepsParts(t *testing.T) {
	sent := full()
	sent.Payload = make([]byte, wire.KeptPayload+1)
	for n := range 100 {
		sent.Metadata[strings.Repeat("p", n+1)] = strings.Repeat("v", 1000)
	}
	r := received(&sent, bindings()["pulsar, kafka"])
	r.Unreadable = wire.Oversize(r.Size(), r.Size()-1, "Config.MaxReceivedBytes")
	env := wire.NewFormat(bindings()["pulsar, kafka"]).Envelope(r)
	require.ErrorIs(t, messaging.Unreadable(messaging.NewMessage(env, 1, nil)), messaging.ErrUnreadable)
	require.Contains(t, env.Metadata[messaging.UnreadableKey], "Config.MaxReceivedBytes")
	require.Equal(t, "id-1", env.ID, "what identifies it comes first")
	require.Len(t, env.Payload, wire.KeptPayload)
	size := 0
	for k, v := range env.Metadata {
		size += len(k) + len(v)
	}
	require.LessOrEqual(t, size, wire.KeptProperties+1000)

	require.Empty(t, wire.Oversize(10, 10, "x"))
	require.Empty(t, wire.Oversize(math.MaxInt, -1, "x"), "no limit")
}
