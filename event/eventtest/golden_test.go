package eventtest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/event/eventtest"
)

// observer is the test of a service.
type observer struct {
	testing.TB

	failures, logs []string
}

func (*observer) Helper() {}
func (o *observer) Errorf(format string, a ...any) {
	o.failures = append(o.failures, fmt.Sprintf(format, a...))
}
func (o *observer) Logf(format string, a ...any) { o.logs = append(o.logs, fmt.Sprintf(format, a...)) }

// service is the folder of a service's tests.
type service struct{ t *testing.T }

func newService(t *testing.T) *service {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("EVENTTEST_UPDATE", "")
	return &service{t}
}

func (s *service) run(register func(*event.Registry), samples ...event.Event) *observer {
	s.t.Helper()
	r, o := event.NewRegistry(), &observer{}
	register(r)
	eventtest.Golden(o, r, samples...)
	return o
}

func (s *service) passes(register func(*event.Registry), samples ...event.Event) {
	s.t.Helper()
	require.Empty(s.t, s.run(register, samples...).failures)
}

// fails demands one failure, which has all the parts.
func (s *service) fails(register func(*event.Registry), parts ...string) {
	s.t.Helper()
	o := s.run(register)
	require.Len(s.t, o.failures, 1)
	for _, part := range parts {
		require.Contains(s.t, o.failures[0], part)
	}
	before := s.files()
	for _, o := range []*observer{o, s.updates(register)} {
		require.Len(s.t, o.failures, 1, "and no update makes it pass")
	}
	require.Equal(s.t, before, s.files(), "nor changes a file")
}

func (s *service) updates(register func(*event.Registry), samples ...event.Event) *observer {
	s.t.Helper()
	s.t.Setenv("EVENTTEST_UPDATE", "1")
	defer s.t.Setenv("EVENTTEST_UPDATE", "")
	return s.run(register, samples...)
}

func (s *service) files() map[string]string {
	s.t.Helper()
	paths, err := filepath.Glob("testdata/events/*")
	require.NoError(s.t, err)
	files := map[string]string{}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		require.NoError(s.t, err)
		files[filepath.Base(p)] = string(text)
	}
	return files
}

func (s *service) put(name, text string) {
	s.t.Helper()
	require.NoError(s.t, os.MkdirAll("testdata/events", 0o755))
	require.NoError(s.t, os.WriteFile("testdata/events/"+name, []byte(text), 0o644))
}

func (s *service) remove(name string) {
	s.t.Helper()
	require.NoError(s.t, os.Remove("testdata/events/"+name))
}

// All of these are one event, in the forms that it has had over time.
type (
	placed struct {
		OrderID string `json:"order_id"`
		Total   int64  `json:"total"`
	}
	withCurrency struct {
		OrderID  string `json:"order_id"`
		Total    int64  `json:"total"`
		Currency string `json:"currency"`
	}
	withNote struct {
		OrderID string `json:"order_id"`
		Total   int64  `json:"total"`
		Note    string `json:"note,omitempty"`
	}
	inAnotherOrder struct {
		Total   int64  `json:"total"`
		OrderID string `json:"order_id"`
	}
	renamedField struct {
		OrderID string `json:"order_id"`
		Cents   int64  `json:"cents"`
	}
	withoutTotal struct {
		OrderID string `json:"order_id"`
	}
	totalIsText struct {
		OrderID string `json:"order_id"`
		Total   string `json:"total"`
	}
	totalIsSmall struct {
		OrderID string `json:"order_id"`
		Total   int32  `json:"total"`
	}
	totalIsFloat struct {
		OrderID string  `json:"order_id"`
		Total   float64 `json:"total"`
	}
	totalIsUnsigned struct {
		OrderID string `json:"order_id"`
		Total   uint64 `json:"total"`
	}
)

func (placed) EventType() string          { return "order.placed" }
func (withCurrency) EventType() string    { return "order.placed" }
func (withNote) EventType() string        { return "order.placed" }
func (inAnotherOrder) EventType() string  { return "order.placed" }
func (renamedField) EventType() string    { return "order.placed" }
func (withoutTotal) EventType() string    { return "order.placed" }
func (totalIsText) EventType() string     { return "order.placed" }
func (totalIsSmall) EventType() string    { return "order.placed" }
func (totalIsFloat) EventType() string    { return "order.placed" }
func (totalIsUnsigned) EventType() string { return "order.placed" }

// as registers an event of type T alone.
func as[T event.Event](opts ...event.RegisterOption) func(*event.Registry) {
	return func(r *event.Registry) { event.Register[T](r, opts...) }
}

// totalToCents is the upcaster from placed to renamedField.
func totalToCents(b []byte) ([]byte, error) {
	return bytes.Replace(b, []byte(`"total"`), []byte(`"cents"`), 1), nil
}

const placedV1 = `{
  "order_id": "OrderID ✓",
  "total": -4611686018427387905
}
`

func TestLifeOfAnEvent(t *testing.T) {
	s := newService(t)
	o := s.run(as[placed]())
	require.Equal(t, []string{"eventtest: testdata/events/order.placed.v1.json is missing: order.placed has no sample of its version 1 yet. " +
		"Write it with EVENTTEST_UPDATE=1 go test, and commit it."}, o.failures)
	require.Empty(t, s.files(), "nothing is written unasked")

	o = s.updates(as[placed]())
	require.Empty(t, o.failures)
	require.Equal(t, []string{"eventtest: wrote testdata/events/order.placed.v1.json: a new version. Commit it."}, o.logs)
	require.Equal(t, map[string]string{"order.placed.v1.json": placedV1}, s.files(), "with numbers beyond 2^53")
	s.passes(as[placed]())
	s.passes(as[inAnotherOrder]())

	second := as[renamedField](event.WithVersion(2), event.WithUpcaster(1, totalToCents))
	require.Contains(t, s.run(second).failures[0], "order.placed.v2.json is missing")
	require.Empty(t, s.updates(second).failures)
	require.Len(t, s.files(), 2)
	s.passes(second)
}

func TestFieldsThatWereChangedWithoutANewVersion(t *testing.T) {
	for _, c := range []struct {
		name     string
		register func(*event.Registry)
		says     string
	}{
		{"removed", as[withoutTotal](), "total is gone"},
		{"renamed", as[renamedField](), "total is gone"},
		{"text", as[totalIsText](), "cannot unmarshal number into Go struct field"},
		{"smaller", as[totalIsSmall](), "cannot unmarshal number -4611686018427387905 into Go struct field"},
		{"float", as[totalIsFloat](), "total is -4611686018427388000 and was -4611686018427387905"},
		{"unsigned", as[totalIsUnsigned](), "cannot unmarshal number -4611686018427387905 into Go struct field"},
		{"codec", as[placed](event.WithCodec(wrapping{})), "does not decode any more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(t)
			s.put("order.placed.v1.json", placedV1)
			s.fails(c.register, "testdata/events/order.placed.v1.json", c.says,
				"raise the version to 2 (event.WithVersion)", "event.WithUpcaster(1, ...)", "EVENTTEST_UPDATE=1 go test")
		})
	}
}

func TestFieldsThatWereAdded(t *testing.T) {
	for name, c := range map[string]struct {
		register func(*event.Registry)
		field    string
	}{"always there": {as[withCurrency](), "currency"}, "left out when empty": {as[withNote](), "note"}} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.put("order.placed.v1.json", placedV1)
			o := s.run(c.register)
			require.Len(t, o.failures, 1)
			require.Contains(t, o.failures[0], "new in order.placed: "+c.field+". Readers ignore what they do not know")
			o = s.updates(c.register)
			require.Empty(t, o.failures)
			require.Contains(t, o.logs[0], "with "+c.field)
			s.passes(c.register)
			s.fails(as[placed](), c.field+" is gone")
		})
	}
}

// All of these are one event with something within something.
type (
	item        struct{ SKU, Note string }
	itemOfOld   struct{ SKU string }
	packed      struct{ Items []item }
	packedOfOld struct{ Items []itemOfOld }
	packedOne   struct{ Items itemOfOld }
	packedTwo   struct{ Items [2]itemOfOld }
	packedFlat  struct{ Items []string }
)

func (packed) EventType() string      { return "packed" }
func (packedOfOld) EventType() string { return "packed" }
func (packedOne) EventType() string   { return "packed" }
func (packedTwo) EventType() string   { return "packed" }
func (packedFlat) EventType() string  { return "packed" }

func TestFieldsWithinLists(t *testing.T) {
	s := newService(t)
	require.Empty(t, s.updates(as[packedOfOld]()).failures)
	s.passes(as[packedOfOld]())
	s.fails(as[packedOne](), "cannot unmarshal array")
	s.fails(as[packedFlat](), "cannot unmarshal object")
	s.fails(as[packedTwo](), `Items is [{"SKU":"SKU ✓"},{"SKU":""}] and was [{"SKU":"SKU ✓"}]`)
	o := s.run(as[packed]())
	require.Len(t, o.failures, 1)
	require.Contains(t, o.failures[0], "new in packed: Items[].Note.")
	require.Empty(t, s.updates(as[packed]()).failures)
	s.fails(as[packedOfOld](), "Items[].Note is gone")

	s.put("packed.v2.json", `{"Items":[{"SKU":"SKU ✓"}]}`)
	s.fails(as[packedOfOld](event.WithVersion(2)), "packed.v1.json", "on the way to version 2 is lost: Items[].Note")
}

func TestTypeThatIsNotRegisteredAnyMore(t *testing.T) {
	s := newService(t)
	s.put("order.placed.v1.json", placedV1)
	s.fails(func(*event.Registry) {}, `"order.placed" is not registered any more`, `event.WithAliases("order.placed")`)
}

func TestFileOfAnEarlierVersionIsGone(t *testing.T) {
	second := as[renamedField](event.WithVersion(2), event.WithUpcaster(1, totalToCents))
	s := newService(t)
	s.put("order.placed.v1.json", placedV1)
	require.Empty(t, s.updates(second).failures)
	s.remove("order.placed.v1.json")
	s.fails(second, "order.placed.v1.json is gone", "restore the file")
	s.put("order.placed.v1.json", "")
	s.passes(second)
}

func TestVersionThatWentBack(t *testing.T) {
	s := newService(t)
	s.put("order.placed.v1.json", placedV1)
	s.put("order.placed.v2.json", placedV1)
	s.fails(as[placed](), "order.placed.v2.json", "the version of order.placed went back to 1")
}

// successor is placed under another name.
type successor struct{ placed }

func (successor) EventType() string { return "order.accepted" }

func TestRenamedType(t *testing.T) {
	s := newService(t)
	s.put("order.placed.v1.json", placedV1)
	o := s.run(as[successor]())
	require.Len(t, o.failures, 2)
	require.Contains(t, o.failures[0], `event.WithAliases("order.placed")`)
	require.Contains(t, o.failures[1], "order.accepted.v1.json is missing")

	renamed := as[successor](event.WithAliases("order.placed"))
	o = s.run(renamed)
	require.Len(t, o.failures, 1, "the earlier name's file does not stand for the new one")
	require.Contains(t, o.failures[0], "order.accepted.v1.json is missing")
	require.Empty(t, s.updates(renamed).failures)
	s.passes(renamed)
	s.put("order.placed.v1.json", `{"order_id":7}`)
	s.fails(renamed, "order.placed.v1.json", "not understood any more")
}

// An earlier name counts as an earlier version of it.
func TestRenamedTypeWithAnEarlierVersion(t *testing.T) {
	s := newService(t)
	s.put("order.placed.v1.json", placedV1)
	renamed := as[successor](event.WithAliases("order.placed"), event.WithVersion(2))
	require.Empty(t, s.updates(renamed).failures)
	s.passes(renamed)
}

func TestEarlierVersionsThatAreNotUnderstood(t *testing.T) {
	for _, c := range []struct {
		name     string
		register func(*event.Registry)
		says     []string
	}{
		{
			"no upcaster", as[renamedField](event.WithVersion(2)),
			[]string{"order.placed.v1.json", "on the way to version 2 is lost: total", "Have event.WithUpcaster(1, ...)"},
		},
		{
			"an upcaster that fails", as[renamedField](event.WithVersion(2), event.WithUpcaster(1, func([]byte) ([]byte, error) {
				return nil, fmt.Errorf("no such field")
			})),
			[]string{"order.placed.v1.json: version 1 is not understood any more", "no such field", "mend event.WithUpcaster(1, ...)"},
		},
		{
			"an upcaster to something else", as[renamedField](event.WithVersion(2), event.WithUpcaster(1, func([]byte) ([]byte, error) {
				return []byte(`{"cents":"many"}`), nil
			})),
			[]string{"version 1 is not understood any more", "cannot unmarshal string"},
		},
		{
			"an upcaster by way of float64", as[renamedField](event.WithVersion(2), event.WithUpcaster(1, func(b []byte) ([]byte, error) {
				var m map[string]any
				if err := json.Unmarshal(b, &m); err != nil {
					return nil, err
				}
				m["cents"] = m["total"]
				delete(m, "total")
				return json.Marshal(m)
			})),
			[]string{"rounds -4611686018427387905 to -4611686018427388000", "json.Decoder.UseNumber"},
		},
		{
			"an upcaster by way of float64 and back", as[renamedField](event.WithVersion(2), event.WithUpcaster(1, func(b []byte) ([]byte, error) {
				var v struct {
					Total float64 `json:"total"`
				}
				if err := json.Unmarshal(b, &v); err != nil {
					return nil, err
				}
				return fmt.Appendf(nil, `{"cents":%d}`, int64(v.Total)), nil
			})),
			[]string{"rounds -4611686018427387905 to -4611686018427387904"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(t)
			s.put("order.placed.v1.json", placedV1)
			s.put("order.placed.v2.json", `{"order_id":"1","cents":5}`)
			s.fails(c.register, c.says...)
		})
	}
}

// A field that an upcaster adds without a value may be left out again.
func TestUpcasterThatAddsAnEmptyField(t *testing.T) {
	s := newService(t)
	s.put("order.placed.v1.json", placedV1)
	second := as[withNote](event.WithVersion(2), event.WithUpcaster(1, func(b []byte) ([]byte, error) {
		return bytes.Replace(b, []byte(`{`), []byte(`{"note":"",`), 1), nil
	}))
	require.Empty(t, s.updates(second).failures)
	s.passes(second)
}

func TestFilesThatAreNone(t *testing.T) {
	for name, says := range map[string]string{
		"order.placed.json": "<type>.v<version>.json", "order.placed.v0.json": "<type>.v<version>.json",
		"%zz.v1.json": "invalid URL escape", "order.placed.v99999999999999999999.json": "out of range",
	} {
		s := newService(t)
		s.put(name, "{}")
		s.fails(func(*event.Registry) {}, "eventtest: read testdata/events: ", says)
	}
	s := newService(t)
	s.put("order.placed.v1.json", "{")
	s.fails(as[placed](), "order.placed.v1.json: unexpected end")

	s = newService(t)
	s.put("README.md", "notes")
	s.put("order.placed.v1.json", placedV1)
	s.passes(as[placed]())
}

// wrapping is a codec whose payload is no JSON.
type wrapping struct{ event.JSON }

func (wrapping) ContentType() string { return "text/wrapped" }

func (w wrapping) Marshal(v any) ([]byte, error) {
	b, err := w.JSON.Marshal(v)
	return fmt.Appendf(nil, "<%s>", b), err
}

func (w wrapping) Unmarshal(data []byte, v any) error {
	if !bytes.HasPrefix(data, []byte("<")) {
		return fmt.Errorf("it is not wrapped")
	}
	return w.JSON.Unmarshal(bytes.Trim(data, "<>"), v)
}

func TestOtherCodecsAreComparedByteByByte(t *testing.T) {
	s := newService(t)
	wrapped := as[placed](event.WithCodec(wrapping{}))
	require.Empty(t, s.updates(wrapped).failures)
	require.Equal(t, map[string]string{
		"order.placed.v1.golden": `<{"order_id":"OrderID ✓","total":-4611686018427387905}>`,
	}, s.files())
	s.passes(wrapped)
	s.fails(as[withCurrency](event.WithCodec(wrapping{})), "is written in another way now")

	// From one codec to another, by an upcaster.
	s = newService(t)
	s.put("order.placed.v1.json", placedV1)
	moved := as[placed](event.WithCodec(wrapping{}), event.WithVersion(2), event.WithUpcaster(1, func(b []byte) ([]byte, error) {
		return fmt.Appendf(nil, "<%s>", b), nil
	}))
	require.Empty(t, s.updates(moved).failures)
	s.passes(moved)
}

type (
	color    string
	nested   struct{ Deep *nested }
	embedded struct{ Promoted string }
	rich     struct {
		embedded

		Flag    bool
		Small   int8
		Bytes   []byte
		Ratio   float32
		At      time.Time
		Took    time.Duration
		Number  json.Number
		Raw     json.RawMessage
		List    []nested
		Map     map[color]uint16
		Array   [2]uint32
		Any     any
		Skipped func() `json:"-"`
		hidden  string
	}
)

func (*rich) EventType() string { return "Rich/event" }

func TestSampleHasAValueInEveryField(t *testing.T) {
	s := newService(t)
	require.Empty(t, s.updates(as[*rich]()).failures)
	s.passes(as[*rich]())
	require.JSONEq(t, `{
		"Promoted":"Promoted ✓", "Flag":true, "Small":-65, "Bytes":"gQ==", "Ratio":1.5e30, "At":"2026-01-02T03:04:05.678901Z",
		"Took":-4611686018427387905, "Number":9007199254740993.5, "Raw":{"raw":9007199254740993}, "List":[{"Deep":{"Deep":null}}],
		"Map":{"Map ✓":32769}, "Array":[2147483649,2147483649], "Any":"Any ✓"
	}`, s.files()["Rich%2Fevent.v1.json"])
	require.Empty(t, (&rich{}).hidden)
}

type (
	shape  interface{ Area() float64 }
	drawn  struct{ Shape shape }
	picked struct{ Color strict }
	strict string
)

// counting is written in another way each time that it was read.
type counting int

func (c counting) MarshalText() ([]byte, error) { return fmt.Append(nil, int(c)+1), nil }

func (c *counting) UnmarshalText(b []byte) error {
	_, err := fmt.Sscan(string(b), (*int)(c))
	return err
}

type counted struct{ Count counting }

func (counted) EventType() string { return "counted" }
func (drawn) EventType() string   { return "drawn" }
func (picked) EventType() string  { return "picked" }

func (c *strict) UnmarshalText(b []byte) error {
	if *c = strict(b); *c != "red" {
		return fmt.Errorf("%s is no color", b)
	}
	return nil
}

func TestSamplesThatCannotBeMade(t *testing.T) {
	s := newService(t)
	o := s.updates(func(r *event.Registry) { as[counted]()(r); as[drawn]()(r); as[picked]()(r) })
	require.Len(t, o.failures, 3)
	require.Empty(t, s.files())
	require.Contains(t, o.failures[0], "no sample of counted could be made: it reads ")
	require.Contains(t, o.failures[1], "no sample of drawn could be made: the field Shape is an interface, eventtest_test.shape. "+
		"Give one: eventtest.Golden(t, registry, eventtest_test.drawn{...})")
	require.Contains(t, o.failures[2], "Color ✓ is no color")

	require.Empty(t, s.updates(as[picked](), picked{"red"}).failures)
	s.passes(as[picked](), picked{"red"})
	o = s.run(as[picked](), picked{"red"}, placed{})
	require.Len(t, o.failures, 1)
	require.True(t, strings.HasPrefix(o.failures[0], "eventtest: the sample eventtest_test.placed is of no use: event: unknown event type"))
}
