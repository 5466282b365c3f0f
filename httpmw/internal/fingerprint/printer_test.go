package fingerprint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/idempotency"
)

func printOf(t testing.TB, method, target, contentType, body string) idempotency.Fingerprint {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, http.NoBody)
	r.Header.Set("Content-Type", contentType)
	sum, err := (&Printer{tag: formatTag, limit: 1 << 20}).Of(r, []byte(body))
	require.NoError(t, err)
	return sum
}

func TestFingerprint(t *testing.T) {
	const media = "application/json; charset=utf-8"
	base := printOf(t, "POST", "/p?a=1&b=2", media, `{"a": 1, "b": [true, null, "\u0041"], "c": {}}`)
	for name, same := range map[string]idempotency.Fingerprint{
		"white space":     printOf(t, "POST", "/p?a=1&b=2", media, `{"a":1,"b":[true,null,"A"],"c":{}}`),
		"members":         printOf(t, "POST", "/p?a=1&b=2", media, ` {"c":{},"b":[true,null,"A"],"a":1} `),
		"query":           printOf(t, "POST", "/p?b=2&a=1", media, `{"a":1,"b":[true,null,"A"],"c":{}}`),
		"media type":      printOf(t, "POST", "/p?b=2&a=1", `Application/JSON;charset="utf-8"`, `{"a":1,"b":[true,null,"A"],"c":{}}`),
		"escapes of ours": printOf(t, "POST", "/p?b=%32&a=1", media, `{"a":1,"b":[true,null,"\u0041"],"c":{}}`),
	} {
		require.Equal(t, base, same, name)
	}
	for name, different := range map[string]idempotency.Fingerprint{
		"method":          printOf(t, "PATCH", "/p?a=1&b=2", media, `{"a":1,"b":[true,null,"A"],"c":{}}`),
		"path":            printOf(t, "POST", "/q?a=1&b=2", media, `{"a":1,"b":[true,null,"A"],"c":{}}`),
		"query":           printOf(t, "POST", "/p?a=1&b=3", media, `{"a":1,"b":[true,null,"A"],"c":{}}`),
		"order of values": printOf(t, "POST", "/p?a=1&b=2&b=1", media, `{"a":1,"b":[true,null,"A"],"c":{}}`),
		"media type":      printOf(t, "POST", "/p?a=1&b=2", "text/plain", `{"a":1,"b":[true,null,"A"],"c":{}}`),
		"value":           printOf(t, "POST", "/p?a=1&b=2", media, `{"a":2,"b":[true,null,"A"],"c":{}}`),
		"number's form":   printOf(t, "POST", "/p?a=1&b=2", media, `{"a":1.0,"b":[true,null,"A"],"c":{}}`),
		"order of items":  printOf(t, "POST", "/p?a=1&b=2", media, `{"a":1,"b":[null,true,"A"],"c":{}}`),
		"type of value":   printOf(t, "POST", "/p?a=1&b=2", media, `{"a":"1","b":[true,null,"A"],"c":{}}`),
		"not JSON":        printOf(t, "POST", "/p?a=1&b=2", media, `{"a":1,"b":[true,null,"A"],"c":{}} x`),
	} {
		require.NotEqual(t, base, different, name)
	}
	require.NotEqual(t, printOf(t, "POST", "/", "text/plain", "{}"), printOf(t, "POST", "/", "text/plain", "{ }"), "only JSON has other spellings")
	require.Equal(t, printOf(t, "POST", "/", "application/merge-patch+json", "{}"), printOf(t, "POST", "/", "application/merge-patch+json", "{ }"))
}

// The same service in another version must find the fingerprints of this one.
func TestFingerprintIsFrozen(t *testing.T) {
	got := printOf(t, "POST", "/payments?a=1", "application/json", `{"b": [1, "x"], "a": {}}`)
	want := idempotency.NewFingerprint("http-2", []byte("POST"), []byte("/payments"), []byte("a=1"), []byte("application/json"),
		[]byte("json"), []byte(`{"a":{},"b":[1,"x"]}`))
	require.Equal(t, want, got)
}

func TestJSONWithoutCanonicalForm(t *testing.T) {
	for name, text := range map[string]string{
		"empty":           "",
		"cut off":         `{"a":`,
		"two values":      `{} {}`,
		"name twice":      `{"a":1,"a":2}`,
		"name twice, esc": `{"a":1,"\u0061":1}`,
		"not UTF-8":       "\"\xff\"",
		"too deep":        strings.Repeat("[", maxJSONDepth+1) + strings.Repeat("]", maxJSONDepth+1),
		"deep and open":   strings.Repeat(`{"a":`, 1<<18),
		"wrong bracket":   `[1}`,
		"trailing comma":  `[1,]`,
		"half a pair":     `{"a":"\ud800"}`,
		"name of halves":  `{"\ud800":1}`,
	} {
		_, ok := canonicalJSON([]byte(text), nil)
		require.False(t, ok, name)
	}
	_, ok := canonicalJSON([]byte(strings.Repeat("[", maxJSONDepth)+strings.Repeat("]", maxJSONDepth)), nil)
	require.True(t, ok)
}

// A deeply nested body costs a bounded multiple of its size, whatever is in it.
func TestCanonicalFormTakesBoundedMemory(t *testing.T) {
	inner := `"` + strings.Repeat("x", 1<<20) + `"`
	text := []byte(strings.Repeat(`{"b":`, maxJSONDepth) + inner + strings.Repeat(`,"a":1}`, maxJSONDepth))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	form, ok := canonicalJSON(text, nil)
	runtime.ReadMemStats(&after)
	require.True(t, ok)
	require.Len(t, form, len(text))
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8*len(text)))
}

// Two texts have one canonical form exactly if they say the same.
func FuzzFingerprint(f *testing.F) {
	f.Add([]byte(`{"a": 1, "b": [true, null, "\u0041"]}`), []byte(`{"b":[true,null,"A"],"a":1}`))
	f.Add([]byte(`{"a":1,"a":2}`), []byte(`{"a":2}`))
	f.Add([]byte(`[1]`), []byte(`[1.0]`))
	f.Add([]byte(`"<>&\u2028"`), []byte("\"<>&\xe2\x80\xa8\""))
	f.Add([]byte(``), []byte(` `))
	f.Add([]byte(`"\ud800"`), []byte(`"\ud801"`))
	f.Add([]byte(`"\ufffd"`), []byte("\"\xef\xbf\xbd\""))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		same := bytes.Equal(a, b)
		formA, okA := canonicalJSON(a, nil)
		formB, okB := canonicalJSON(b, nil)
		if okA && okB {
			same = reflect.DeepEqual(decode(t, a), decode(t, b))
			if bytes.Equal(formA, formB) != same {
				t.Fatalf("%q and %q: same %t, canonical %q and %q", a, b, same, formA, formB)
			}
			if twice, ok := canonicalJSON(formA, nil); !ok || !bytes.Equal(twice, formA) {
				t.Fatalf("%q is not stable: %q", formA, twice)
			}
		}
		printA := printOf(t, "POST", "/", "application/json", string(a))
		printB := printOf(t, "POST", "/", "application/json", string(b))
		if (printA == printB) != same {
			t.Fatalf("%q and %q: same %t, fingerprints equal %t", a, b, same, printA == printB)
		}
	})
}

func decode(t *testing.T, text []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%q has a canonical form and is no JSON: %v", text, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("%q has a canonical form and more than one value", text)
	}
	return v
}
