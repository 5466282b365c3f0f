package messagingtest

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
)

const nasty = "Ünï\"c'o/d\\e Ωж %2F &=;<> \u202e🙂"

// testEnvelope sends the peculiar envelopes one by one, and compares each received envelope with the sent one.
func testEnvelope(s *session) {
	r := s.subscribe("exchange", "")
	for name, change := range peculiarities() {
		sent := s.message("key", 1)
		change(&sent)
		s.exchange(r, name, sent)
	}
}

// testEnvelopes sends the peculiar envelopes in one call, so that a field that leaks from one envelope into another is found.
func testEnvelopes(s *session) {
	r := s.subscribe("exchange", "")
	var sent []event.Envelope
	want := map[string]event.Envelope{}
	names := map[string]string{}
	for name, change := range peculiarities() {
		e := s.message("key", 1)
		change(&e)
		sent = append(sent, e)
		names[e.ID] = name
		e.Metadata = e.Metadata.Clone()
		want[e.ID] = e
	}
	s.publish(sent...)
	for _, m := range s.receiveThese(r, sent, nil) {
		requireEnvelope(s.t, names[m.ID], want[m.ID], m.Envelope)
	}
}

type peculiarity = map[string]func(*event.Envelope)

// peculiarities returns valid envelopes that are easily encoded wrongly: each one has broken some encoding.
func peculiarities() peculiarity {
	all := peculiarity{}
	for _, some := range []peculiarity{peculiarFields(), peculiarMetadata(), peculiarPayloads(), peculiarTimes()} {
		maps.Copy(all, some)
	}
	return all
}

func peculiarFields() peculiarity {
	return peculiarity{
		"plain": func(*event.Envelope) {},
		"nothing but what is required": func(e *event.Envelope) {
			*e = event.Envelope{ID: e.ID, Type: "t", Source: "s", TenantID: "t1", Topic: e.Topic, OccurredAt: e.OccurredAt, ContentType: "x/y"}
		},
		"every field": func(e *event.Envelope) {
			e.SchemaID, e.SchemaVersion = "https://schemas.example/thing/7", 7
			e.AggregateVersion, e.Sequence = 41, 99
			e.Metadata = event.Metadata{
				event.CorrelationID: "c-1", event.CausationID: "c-2", "x": "y",
				event.TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", event.TraceState: "vendor=a",
			}
		},
		"awkward strings": func(e *event.Envelope) {
			e.ID, e.Type, e.Source, e.SchemaID, e.TenantID = nasty+"0", nasty+"1", nasty+"2", nasty+"3", nasty+"4"
			e.AggregateType, e.AggregateID, e.RoutingKey, e.ContentType = nasty+"5", nasty+"6", nasty+"7", nasty+"8"
			e.Delivery.OrderingKey = e.RoutingKey
			e.Metadata = event.Metadata{nasty: nasty, event.CorrelationID: nasty, event.TraceState: nasty}
		},
		"identifiers of every printable character": func(e *event.Envelope) {
			for _, field := range []*string{
				&e.Type, &e.Source, &e.SchemaID, &e.TenantID, &e.AggregateType, &e.AggregateID, &e.RoutingKey, &e.Delivery.OrderingKey,
			} {
				*field = characters(' ', '~')
			}
		},
		"longest identifiers": func(e *event.Envelope) {
			for i, field := range []*string{&e.ID, &e.Type, &e.Source, &e.SchemaID, &e.TenantID, &e.AggregateType, &e.AggregateID, &e.RoutingKey} {
				*field = strings.Repeat(string(rune('a'+i)), event.MaxIdentifier)
			}
			e.Delivery.OrderingKey = e.RoutingKey
			e.Metadata = event.Metadata{strings.Repeat("k", event.MaxIdentifier): "v"}
		},
		"no key":         func(e *event.Envelope) { e.RoutingKey = "" },
		"key of its own": func(e *event.Envelope) { e.RoutingKey = "other-than-the-aggregate" },
		"largest numbers": func(e *event.Envelope) {
			e.Sequence, e.AggregateVersion, e.SchemaVersion = math.MaxInt64, math.MaxInt64, math.MaxInt32
		},
		"ordering key": func(e *event.Envelope) { e.Delivery.OrderingKey, e.RoutingKey = "o", "o" },
		"delivery stays at home but for the ordering key": func(e *event.Envelope) {
			e.RoutingKey = "o"
			e.Delivery = event.Delivery{OrderingKey: "o", DedupKey: "d", NotBefore: e.OccurredAt, Delay: 1, ExpiresAt: e.OccurredAt, MaxAttempts: 3}
		},
	}
}

func peculiarMetadata() peculiarity {
	return peculiarity{
		"metadata that looks like something else": func(e *event.Envelope) {
			e.Metadata = event.Metadata{
				"ce_id": "1", "ce_specversion": "2", "ce_extension": "3", "content-type": "4", "meta-": "5", "meta-x": "6", "x": "7",
				"ce_correlationid": "8", "correlation-id": "9", "Content-Type": "10", " ": "11", "a=b;c": "12", "ce_subject": "13", "Correlation_ID": "14",
			}
		},
		"empty values in the metadata": func(e *event.Envelope) {
			e.Metadata = event.Metadata{"empty": "", event.CorrelationID: "", event.CausationID: "", event.TraceParent: "", event.TraceState: ""}
		},
		"every legal byte in a value": func(e *event.Envelope) {
			e.Metadata = event.Metadata{"all": characters(1, 0x2ff) + "\ufeff\ufffd\uffff\U0001f642\U0010ffff"}
		},
		"every printable character as a key": func(e *event.Envelope) {
			e.Metadata = event.Metadata{"é": "e", "Ж": "zh", "🙂": "smile"}
			for c := ' '; c <= '~'; c++ {
				e.Metadata[string(c)] = string(c)
			}
		},
		"line breaks in the metadata": func(e *event.Envelope) { e.Metadata = event.Metadata{"lines": "a\r\nb\tc\n"} },
		"many keys": func(e *event.Envelope) {
			e.Metadata = event.Metadata{}
			for i := range 500 {
				e.Metadata[fmt.Sprintf("key-%d", i)] = strconv.Itoa(i)
			}
		},
		"full metadata": func(e *event.Envelope) {
			e.Metadata = event.Metadata{"large": strings.Repeat("x", event.MaxMetadata-5)}
		},
	}
}

func peculiarPayloads() peculiarity {
	return peculiarity{
		"no payload":    func(e *event.Envelope) { e.Payload = nil },
		"empty payload": func(e *event.Envelope) { e.Payload = []byte{} },
		"one zero byte": func(e *event.Envelope) { e.Payload = []byte{0} },
		"every byte": func(e *event.Envelope) {
			e.ContentType = "application/octet-stream"
			e.Payload = everyByte()
		},
		"JSON that must not be parsed": func(e *event.Envelope) { e.Payload = []byte(`{"b":1, "a":12345678901234567890.10 , "b":2}` + "\n") },
	}
}

func peculiarTimes() peculiarity {
	return peculiarity{
		"one microsecond":            func(e *event.Envelope) { e.OccurredAt = time.Date(2025, 1, 1, 0, 0, 0, 1000, time.UTC) },
		"long ago":                   func(e *event.Envelope) { e.OccurredAt = time.Date(1815, 12, 10, 7, 8, 9, 999_999_000, time.UTC) },
		"the beginning of Unix time": func(e *event.Envelope) { e.OccurredAt = time.Unix(0, 0).UTC() },
		"far ahead":                  func(e *event.Envelope) { e.OccurredAt = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC) },
		"another time zone": func(e *event.Envelope) {
			e.OccurredAt = time.Date(2025, 6, 1, 2, 0, 0, 5000, time.FixedZone("somewhere", 5*3600+1800))
		},
	}
}

func testLargeEnvelope(s *session) {
	if s.h.MaxMessageBytes < 0 {
		s.h.MaxMessageBytes = 5 << 20
	}
	sent := s.message("key", 1)
	sent.Payload = make([]byte, s.h.MaxMessageBytes-s.h.MaxMessageBytes/5)
	for i := range sent.Payload {
		sent.Payload[i] = byte(i >> 8)
	}
	s.exchange(s.subscribe("exchange", ""), "four fifths of the limit", sent)
}

// testLargestNumber sends the largest schema version of 64 bits. Consumers store 32 bits, so the adapter must refuse it for good or
// deliver a smaller number.
func testLargestNumber(s *session) {
	r := s.subscribe("exchange", "")
	sent := s.message("key", 1)
	sent.SchemaVersion = math.MaxInt64
	if err := s.attempt(s.ctx, []event.Envelope{sent}); err != nil {
		require.True(s.t, messaging.IsPermanent(err), "refused, and not for good: %v", err)
		return
	}
	m := s.receive(r)
	s.ack(r, m)
	require.LessOrEqual(s.t, m.SchemaVersion, math.MaxInt32, "a schema version that no column takes")
}

// testIsolation changes a message after it was published and after it was received. Neither may change what other receivers, or a second
// delivery, get.
func testIsolation(s *session) {
	t := s.t
	a, b := s.subscribe("a", ""), s.subscribe("b", "")
	sent := s.message("key", 1)
	sent.Metadata = event.Metadata{"k": "v"}
	want := sent
	want.Metadata, want.Payload = event.Metadata{"k": "v"}, append([]byte{}, sent.Payload...)
	s.publish(sent)
	sent.Metadata["k"] = "changed by the publisher"
	sent.Payload[0] = 'X'

	first := s.receive(a)
	requireEnvelope(t, "first subscription", want, first.Envelope)
	first.Metadata["k"] = "changed by a consumer"
	first.Payload[0] = 'Y'
	requireEnvelope(t, "second subscription", want, s.receive(b).Envelope)

	require.NoError(t, a.Redeliver(s.ctx, first))
	again := s.receive(a)
	requireEnvelope(t, "second delivery", want, again.Envelope)
	s.ack(a, again)
}

// exchange sends one message and compares the received envelope with it.
func (s *session) exchange(r messaging.Receiver, name string, sent event.Envelope) {
	s.t.Helper()
	want := sent
	want.Metadata = sent.Metadata.Clone()
	s.publish(sent)
	m := s.receive(r)
	s.ack(r, m)
	requireEnvelope(s.t, name, want, m.Envelope)
}

func requireEnvelope(t tester, name string, want, got event.Envelope) {
	t.Helper()
	require.True(t, want.OccurredAt.Equal(got.OccurredAt), "%s: OccurredAt: sent %s, got %s", name, want.OccurredAt, got.OccurredAt)
	require.Equal(t, "UTC", got.OccurredAt.Location().String(), "%s: zone of OccurredAt", name)
	require.Equal(t, string(want.Payload), string(got.Payload), "%s: Payload", name)
	require.NotNil(t, got.Metadata, "%s: Metadata can be written to", name)
	require.Equal(t, want.Metadata.Clone(), got.Metadata, "%s: Metadata", name)
	require.Equal(t, want.Delivery.OrderingKey, got.Delivery.OrderingKey, "%s: Delivery.OrderingKey", name)
	require.Equal(t, event.Delivery{OrderingKey: got.Delivery.OrderingKey}, got.Delivery, "%s: Delivery", name)
	for _, e := range []*event.Envelope{&want, &got} {
		e.OccurredAt, e.Payload, e.Metadata, e.Delivery = time.Time{}, nil, nil, event.Delivery{}
	}
	require.Equal(t, want, got, name)
}

func everyByte() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func characters(from, to rune) string {
	var b strings.Builder
	for c := from; c <= to; c++ {
		b.WriteRune(c)
	}
	return b.String()
}
