package event_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
)

func encodeDecode(t *testing.T, r *event.Registry, ev event.Event) event.Event {
	t.Helper()
	enc, err := r.Encode(ev)
	require.NoError(t, err)
	got, err := r.Decode(&event.Envelope{Type: enc.Type, SchemaVersion: enc.SchemaVersion, Payload: enc.Payload})
	require.NoError(t, err)
	return got
}

func TestValueAndPointerTypes(t *testing.T) {
	r := event.NewRegistry()
	event.Register[placed](r)
	event.Register[*cancelled](r)

	require.Equal(t, placed{"1", 2}, encodeDecode(t, r, placed{"1", 2}))
	require.Equal(t, placed{"1", 2}, encodeDecode(t, r, &placed{"1", 2}), "a pointer to a type that was registered as a value")
	require.Equal(t, &cancelled{"late"}, encodeDecode(t, r, &cancelled{"late"}))

	enc, err := r.Encode(placed{"1", 2})
	require.NoError(t, err)
	require.Equal(t, event.Envelope{
		Type: "order.placed", SchemaVersion: 1, ContentType: "application/json", Payload: []byte(`{"order_id":"1","total":2}`),
	}, enc)
}

// The values of samples do not matter, also if the name of a type is made of a value.
func TestRegisterAll(t *testing.T) {
	r := event.NewRegistry()
	event.RegisterAll(r, placed{"7", 7}, &cancelled{"late"}, versioned{})
	require.Equal(t, placed{"1", 2}, encodeDecode(t, r, placed{"1", 2}))
	require.Equal(t, &cancelled{"soon"}, encodeDecode(t, r, &cancelled{"soon"}))
	enc, err := r.Encode(versioned{})
	require.NoError(t, err)
	require.Equal(t, 3, enc.SchemaVersion)
	require.Panics(t, func() { event.RegisterAll(r, placed{}) }, "it is there")
	require.Panics(t, func() { event.RegisterAll(r, nil) })
}

func TestNilEventIsRefused(t *testing.T) {
	r := event.NewRegistry()
	event.Register[placed](r)
	event.Register[*cancelled](r)
	for _, ev := range []event.Event{nil, (*cancelled)(nil), (*placed)(nil)} {
		_, err := r.Encode(ev)
		require.ErrorIs(t, err, event.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("is nil (%T)", ev))
	}
}

// A null that somebody sent is no event: a handler would take it for an order of nobody.
func TestNullIsNoStruct(t *testing.T) {
	r := event.NewRegistry()
	event.Register[placed](r)
	event.Register[*cancelled](r)
	event.Register[optional](r)
	for _, name := range []string{"order.placed", "order.cancelled"} {
		for _, payload := range []string{"null", " null\r\n"} {
			_, err := r.Decode(&event.Envelope{Type: name, Payload: []byte(payload)})
			var decode *event.DecodeError
			require.ErrorAs(t, err, &decode)
			require.ErrorContains(t, err, "null")
		}
	}
	got, err := r.Decode(&event.Envelope{Type: "optional", Payload: []byte("null")})
	require.NoError(t, err)
	require.Equal(t, optional{"nothing"}, got, "it decides by itself")
}

// optional has a meaning for null.
type optional struct{ meaning string }

func (optional) EventType() string { return "optional" }

func (o *optional) UnmarshalJSON([]byte) error {
	o.meaning = "nothing"
	return nil
}

// other has the name of placed and another Go type.
type other struct{}

func (other) EventType() string { return "order.placed" }

// byValue is registered as a pointer and recorded as a value.
type byValue struct{}

func (byValue) EventType() string { return "by.value" }

func TestUnknownTypes(t *testing.T) {
	r := event.NewRegistry()
	_, err := r.Encode(placed{})
	require.ErrorIs(t, err, event.ErrUnknownType)
	require.ErrorContains(t, err, "call event.Register[event_test.placed] at start")
	_, err = r.Decode(&event.Envelope{Type: "order.placed"})
	require.ErrorIs(t, err, event.ErrUnknownType)
	require.ErrorContains(t, err, `"order.placed"`)

	event.Register[placed](r)
	event.Register[*byValue](r)
	_, err = r.Encode(other{})
	require.ErrorIs(t, err, event.ErrUnknownType, "the name is known, the Go type is another one")
	require.ErrorContains(t, err, "registered for event_test.placed, not for event_test.other")
	_, err = r.Encode(&other{})
	require.ErrorIs(t, err, event.ErrUnknownType)
	_, err = r.Encode(byValue{})
	require.ErrorIs(t, err, event.ErrUnknownType)

	name, ok := r.Name("order.unheard_of")
	require.False(t, ok)
	require.Empty(t, name)
}

type named struct{ Name string }

func (n named) EventType() string { return n.Name }

type versioned struct {
	A, B, C string
}

func (versioned) EventType() string  { return "versioned" }
func (versioned) SchemaVersion() int { return 3 }

type zeroVersion struct{}

func (zeroVersion) EventType() string  { return "zero" }
func (zeroVersion) SchemaVersion() int { return 0 }

func TestRegisterPanicsOnMistakes(t *testing.T) {
	keep := func(b []byte) ([]byte, error) { return b, nil }
	for _, c := range []struct {
		says     string
		register func(*event.Registry)
	}{
		{"is taken by event_test.placed", func(r *event.Registry) { event.Register[placed](r) }},
		{"is taken by event_test.placed", func(r *event.Registry) { event.Register[other](r) }},
		{`"order.placed" is taken`, func(r *event.Registry) { event.Register[*cancelled](r, event.WithAliases("order.placed")) }},
		{`"order.made" is taken`, func(r *event.Registry) { event.Register[*cancelled](r, event.WithAliases("order.made")) }},
		{`"twice" is taken`, func(r *event.Registry) { event.Register[*cancelled](r, event.WithAliases("twice", "twice")) }},
		{"is empty", func(r *event.Registry) { event.Register[named](r) }},
		{"is empty", func(r *event.Registry) { event.Register[*cancelled](r, event.WithAliases("")) }},
		{"not an identifier", func(r *event.Registry) { event.Register[*cancelled](r, event.WithAliases("a\x00")) }},
		{"versions count from 1", func(r *event.Registry) { event.Register[zeroVersion](r) }},
		{"versions count from 1", func(r *event.Registry) { event.Register[*cancelled](r, event.WithVersion(-1)) }},
		{"upcaster from version 3", func(r *event.Registry) { event.Register[versioned](r, event.WithUpcaster(3, keep)) }},
		{"upcaster from version 0", func(r *event.Registry) { event.Register[versioned](r, event.WithUpcaster(0, keep)) }},
		{"implement the interface", func(r *event.Registry) { event.Register[event.Event](r) }},
	} {
		t.Run(c.says, func(t *testing.T) {
			r := event.NewRegistry()
			event.Register[placed](r, event.WithAliases("order.made"))
			defer func() { require.Contains(t, fmt.Sprint(recover()), c.says) }()
			c.register(r)
			t.Error("it must panic")
		})
	}
}

func TestAliases(t *testing.T) {
	r := event.NewRegistry()
	event.Register[placed](r, event.WithAliases("order.made", "OrderPlaced"))
	for _, name := range []string{"order.placed", "order.made", "OrderPlaced"} {
		got, err := r.Decode(&event.Envelope{Type: name, Payload: []byte(`{"order_id":"1"}`)})
		require.NoError(t, err)
		require.Equal(t, placed{OrderID: "1"}, got)
		current, ok := r.Name(name)
		require.True(t, ok)
		require.Equal(t, "order.placed", current)
	}
	enc, err := r.Encode(placed{})
	require.NoError(t, err)
	require.Equal(t, "order.placed", enc.Type, "new events carry the current name")
}

// step appends its mark to what the steps before it left.
func step(mark string) func([]byte) ([]byte, error) {
	return func(payload []byte) ([]byte, error) {
		return bytes.Replace(payload, []byte(`"}`), []byte(mark+`"}`), 1), nil
	}
}

func TestUpcastersRunInAChain(t *testing.T) {
	r := event.NewRegistry()
	event.Register[versioned](r, event.WithVersion(4), event.WithUpcaster(1, step("1")), event.WithUpcaster(3, step("3")))
	for version, want := range map[int]string{0: "13", 1: "13", 2: "3", 3: "3", 4: ""} {
		env := event.Envelope{Type: "versioned", SchemaVersion: version, Payload: []byte(`{"A":""}`)}
		got, err := r.Decode(&env)
		require.NoError(t, err)
		require.Equal(t, versioned{A: want}, got, "from version %d", version)
		require.JSONEq(t, `{"A":""}`, string(env.Payload), "the envelope's payload is as it came")
	}
	enc, err := r.Encode(versioned{})
	require.NoError(t, err)
	require.Equal(t, 4, enc.SchemaVersion, "the option wins over the method")
}

func TestDecodeErrors(t *testing.T) {
	broken := errors.New("no such field")
	r := event.NewRegistry()
	event.Register[versioned](r, event.WithUpcaster(2, func([]byte) ([]byte, error) { return nil, broken }))
	for _, c := range []struct {
		name    string
		version int
		payload string
		says    string
		is      error
	}{
		{"newer", 4, `{}`, "event: decode versioned version 4: newer than version 3, which this build knows", nil},
		{"upcaster", 1, `{}`, "event: decode versioned version 2: upcast to version 3: no such field", broken},
		{"syntax", 3, `{"A":`, "event: decode versioned version 3: unexpected end", nil},
		{"type", 3, `{"A":1}`, "cannot unmarshal number", nil},
		{"more than one value", 3, `{"A":"x"} {}`, "invalid character", nil},
		{"nothing", 3, ``, "unexpected end", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := r.Decode(&event.Envelope{Type: "versioned", SchemaVersion: c.version, Payload: []byte(c.payload)})
			require.Nil(t, got)
			var decode *event.DecodeError
			require.ErrorAs(t, err, &decode)
			require.Equal(t, "versioned", decode.Type)
			require.ErrorContains(t, err, c.says)
			require.NotErrorIs(t, err, event.ErrUnknownType)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
}

type numbers struct {
	Exact  int64
	Number json.Number
	Raw    json.RawMessage
}

func (numbers) EventType() string { return "numbers" }

func TestNumbersBeyondTheDoubleAreExact(t *testing.T) {
	r := event.NewRegistry()
	event.Register[numbers](r)
	want := numbers{1<<53 + 1, "123456789012345678901234567890.5", json.RawMessage(`9007199254740993`)}
	require.Equal(t, want, encodeDecode(t, r, want))
}

func TestFieldsThatAreNotKnownAreIgnored(t *testing.T) {
	r := event.NewRegistry()
	event.Register[placed](r)
	got, err := r.Decode(&event.Envelope{Type: "order.placed", Payload: []byte(`{"order_id":"1","added":{}}`)})
	require.NoError(t, err)
	require.Equal(t, placed{OrderID: "1"}, got)
}

// upper is a codec of the user's own.
type upper struct{}

func (upper) ContentType() string { return "text/upper" }

func (upper) Marshal(v any) ([]byte, error) {
	return []byte(strings.ToUpper(v.(*cancelled).Reason)), nil
}

func (upper) Unmarshal(data []byte, v any) error {
	v.(*cancelled).Reason = strings.ToLower(string(data))
	return nil
}

func TestCodecOfAType(t *testing.T) {
	r := event.NewRegistry()
	event.Register[*cancelled](r, event.WithCodec(upper{}))
	enc, err := r.Encode(&cancelled{"late"})
	require.NoError(t, err)
	require.Equal(t, event.Envelope{Type: "order.cancelled", SchemaVersion: 1, ContentType: "text/upper", Payload: []byte("LATE")}, enc)
	require.Equal(t, &cancelled{"late"}, encodeDecode(t, r, &cancelled{"late"}), "a pointer type is decoded into as it is")
}

type unencodable struct{ F func() }

func (unencodable) EventType() string { return "unencodable" }

func TestEncodeErrorNamesTheType(t *testing.T) {
	r := event.NewRegistry()
	event.Register[unencodable](r)
	_, err := r.Encode(unencodable{F: func() {}})
	require.ErrorContains(t, err, "event: encode unencodable: ")
}

func TestRegistryIsReadFromManyGoroutines(t *testing.T) {
	r := event.NewRegistry()
	event.Register[placed](r)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				_, _ = r.Encode(placed{})
				_, _ = r.Decode(&event.Envelope{Type: "order.placed", Payload: []byte("{}")})
			}
		})
	}
	event.Register[*cancelled](r)
	wg.Wait()
}

func FuzzDecode(f *testing.F) {
	r := event.NewRegistry()
	event.Register[versioned](r, event.WithUpcaster(1, step("1")), event.WithUpcaster(2, step("2")))
	f.Add(1, []byte(`{"A":"x"}`))
	f.Add(3, []byte(`null`))
	f.Fuzz(func(t *testing.T, version int, payload []byte) {
		kept := bytes.Clone(payload)
		ev, err := r.Decode(&event.Envelope{Type: "versioned", SchemaVersion: version, Payload: payload})
		require.Equal(t, err == nil, ev != nil)
		require.Equal(t, kept, payload)
	})
}
