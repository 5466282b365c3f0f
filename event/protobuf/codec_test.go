package protobuf_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/event/eventtest"
	"github.com/oncebox/oncebox/event/protobuf"
)

// counted embeds a message, settings one with a map in it.
type (
	counted  struct{ *wrapperspb.Int64Value }
	settings struct{ *structpb.Struct }
)

func (counted) EventType() string  { return "stock.counted" }
func (settings) EventType() string { return "settings" }

func TestRoundTrip(t *testing.T) {
	values, pointers := event.NewRegistry(), event.NewRegistry()
	event.Register[counted](values, event.WithCodec(protobuf.Codec{}))
	event.Register[*counted](pointers, event.WithCodec(protobuf.Codec{}))
	for _, n := range []int64{0, 1<<53 + 1, math.MaxInt64, math.MinInt64} {
		for name, r := range map[string]*event.Registry{"value": values, "pointer": pointers} {
			enc, err := r.Encode(&counted{wrapperspb.Int64(n)})
			require.NoError(t, err, name)
			require.Equal(t, "application/protobuf", enc.ContentType)
			got, err := r.Decode(&event.Envelope{Type: enc.Type, Payload: enc.Payload})
			require.NoError(t, err, name)
			require.Equal(t, n, got.(interface{ GetValue() int64 }).GetValue(), name)
		}
	}
}

// A message itself, as the codec gets it from types that have their EventType beside the generated code.
func TestMessageItself(t *testing.T) {
	var codec protobuf.Codec
	data, err := codec.Marshal(wrapperspb.String("x"))
	require.NoError(t, err)
	got := wrapperspb.String("overwritten")
	require.NoError(t, codec.Unmarshal(data, got))
	require.Equal(t, "x", got.GetValue())
	require.NoError(t, codec.Unmarshal(nil, got))
	require.Empty(t, got.GetValue(), "an empty payload is an empty message")
}

func TestEqualMessagesGiveEqualBytes(t *testing.T) {
	many := map[string]any{}
	for c := 'a'; c <= 'z'; c++ {
		many[string(c)] = true
	}
	var first []byte
	for range 50 {
		s, err := structpb.NewStruct(many)
		require.NoError(t, err)
		data, err := protobuf.Codec{}.Marshal(settings{s})
		require.NoError(t, err)
		if first == nil {
			first = data
		}
		require.Equal(t, first, data)
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	data, err := proto.Marshal(&durationpb.Duration{Seconds: 7, Nanos: 9})
	require.NoError(t, err)
	got := &wrapperspb.Int64Value{}
	require.NoError(t, protobuf.Codec{}.Unmarshal(data, got))
	require.EqualValues(t, 7, got.GetValue())
	require.Empty(t, got.ProtoReflect().GetUnknown())
}

type plain struct{}

// hidden is a message only by the methods of the interface that it embeds.
type hidden struct{ proto.Message }

func TestWhatIsNoMessage(t *testing.T) {
	var codec protobuf.Codec
	for _, c := range []struct {
		name string
		v    any
		says string
	}{
		{"nil", nil, "<nil>: the message is nil"},
		{"another type", &plain{}, "*protobuf_test.plain: it is no proto.Message"},
		{"nil message", (*wrapperspb.Int64Value)(nil), "*wrapperspb.Int64Value: the message is nil"},
		{"nil pointer to a struct with a message", (*counted)(nil), "*protobuf_test.counted: the message is nil"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := codec.Marshal(c.v)
			require.ErrorContains(t, err, "protobuf: marshal "+c.says)
			require.ErrorContains(t, codec.Unmarshal(nil, c.v), "protobuf: unmarshal "+c.says)
		})
	}
	_, err := codec.Marshal(counted{})
	require.EqualError(t, err, "protobuf: marshal protobuf_test.counted: the message is nil")
	require.EqualError(t, codec.Unmarshal(nil, counted{}), "protobuf: unmarshal protobuf_test.counted: the message is nil", "not a pointer")
	require.EqualError(t, codec.Unmarshal(nil, &hidden{(*wrapperspb.BoolValue)(nil)}),
		"protobuf: unmarshal *protobuf_test.hidden: the message is nil", "an interface does not tell which message to make")
}

func TestBytesThatAreNoMessage(t *testing.T) {
	r := event.NewRegistry()
	event.Register[counted](r, event.WithCodec(protobuf.Codec{}))
	_, err := r.Decode(&event.Envelope{Type: "stock.counted", Payload: []byte(`{"value":1}`)})
	var decode *event.DecodeError
	require.ErrorAs(t, err, &decode)
	_, err = r.Encode(counted{})
	require.EqualError(t, err, "event: encode stock.counted: protobuf: marshal protobuf_test.counted: the message is nil")
}

// timed has another message under the name of counted: its number is a text.
type timed struct{ *wrapperspb.StringValue }

func (timed) EventType() string { return "stock.counted" }

// failures counts what a test would report.
type failures struct {
	testing.TB
	n int
}

func (*failures) Helper()                 {}
func (f *failures) Errorf(string, ...any) { f.n++ }

func TestGolden(t *testing.T) {
	r := event.NewRegistry()
	event.Register[counted](r, event.WithCodec(protobuf.Codec{}))
	eventtest.Golden(t, r)

	r = event.NewRegistry()
	event.Register[timed](r, event.WithCodec(protobuf.Codec{}))
	f := &failures{TB: t}
	eventtest.Golden(f, r)
	require.Equal(t, 1, f.n, "a field that is another one now is unknown, and does not survive")
}
