package fingerprint

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCanonicalJSONWithoutExcludedValues(t *testing.T) {
	for name, tc := range map[string]struct {
		exclude    []string
		text, want string
	}{
		"nothing":           {nil, `{"b": 1, "a": 2}`, `{"a":2,"b":1}`},
		"a member":          {[]string{"/b"}, `{"b": {"c": [1]}, "a": 2}`, `{"a":2}`},
		"all members":       {[]string{"/b", "/a"}, `{"b": 1, "a": 2}`, `{}`},
		"one below":         {[]string{"/b/c"}, `{"b": {"c": 1, "d": 2}, "c": 3}`, `{"b":{"d":2},"c":3}`},
		"through an array":  {[]string{"/1/a"}, `[{"a": 1}, {"a": 1}]`, `[{"a":1},{}]`},
		"an item":           {[]string{"/0"}, `[1, 2, 3]`, `[2,3]`},
		"escaped":           {[]string{"/a~1b", "/c~0d", "/~01"}, `{"a/b": 1, "c~d": 2, "~1": 3, "e": 4}`, `{"e":4}`},
		"the empty name":    {[]string{"/"}, `{"": 1, "a": 2}`, `{"a":2}`},
		"both, outer first": {[]string{"/a", "/a/b"}, `{"a": {"c": 1}}`, `{}`},
		"both, inner first": {[]string{"/a/b", "/a"}, `{"a": {"c": 1}}`, `{}`},
		"no such thing":     {[]string{"/x/y"}, `{"x": 1}`, `{"x":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			exclude, err := parsePointers(tc.exclude)
			require.NoError(t, err)
			got, ok := canonicalJSON([]byte(tc.text), exclude)
			require.True(t, ok)
			require.Equal(t, tc.want, string(got))
		})
	}
	// Excluded members must not hide a body that two readers understand differently.
	exclude, err := parsePointers([]string{"/a"})
	require.NoError(t, err)
	for _, text := range []string{`{"a": 1, "a": 2}`, `{"a": {"b": 1, "b": 2}}`, `{"a": 1,}`} {
		_, ok := canonicalJSON([]byte(text), exclude)
		require.False(t, ok, text)
	}
}

// Excluded members count as absent, and no others do.
func FuzzExclude(f *testing.F) {
	f.Add([]byte(`{"a": 1, "b": [true, {"a": 2}]}`), "/b/1/a")
	f.Add([]byte(`{"a": {"b": 1}, "a/b": 2, "a~b": 3}`), "/a~1b")
	f.Add([]byte(`[1, [2, 3]]`), "/1/0")
	f.Add([]byte(`{"": {"": 1}}`), "//")
	f.Fuzz(func(t *testing.T, text []byte, pointer string) {
		exclude, err := parsePointers([]string{pointer})
		if err != nil {
			return
		}
		got, ok := canonicalJSON(text, exclude)
		if _, canonical := canonicalJSON(text, nil); canonical != ok {
			t.Fatalf("%q has a canonical form: %t, without %q: %t", text, canonical, pointer, ok)
		}
		if !ok {
			return
		}
		names := strings.Split(pointer, "/")[1:]
		for i, name := range names {
			names[i] = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		}
		rest, err := json.Marshal(without(decode(t, text), names))
		require.NoError(t, err)
		want, ok := canonicalJSON(rest, nil)
		require.True(t, ok)
		if string(got) != string(want) {
			t.Fatalf("%q without %q: %q, want %q", text, pointer, got, want)
		}
	})
}

// without removes a value the plain way.
func without(v any, names []string) any {
	name, last := names[0], len(names) == 1
	switch v := v.(type) {
	case map[string]any:
		if below, there := v[name]; there && last {
			delete(v, name)
		} else if there {
			v[name] = without(below, names[1:])
		}
	case []any:
		i, err := strconv.Atoi(name)
		if err != nil || i < 0 || i >= len(v) || strconv.Itoa(i) != name {
			return v
		}
		if last {
			return slices.Delete(v, i, i+1)
		}
		v[i] = without(v[i], names[1:])
	}
	return v
}
