package eventtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// parse reads two payloads as JSON. Numbers keep all their digits.
func parse(a, b []byte) (left, right any, isJSON bool) {
	left, errLeft := read(a)
	right, errRight := read(b)
	return left, right, errLeft == nil && errRight == nil
}

func read(payload []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.UseNumber()
	return v, d.Decode(&v)
}

// differences lists the parts of before that are missing or different in after. It ignores parts that only after has.
func differences(before, after any, at string) (found []string) {
	switch b := before.(type) {
	case map[string]any:
		a, ok := after.(map[string]any)
		if !ok {
			return []string{became(at, before, after)}
		}
		for _, key := range slices.Sorted(maps.Keys(b)) {
			if value, ok := a[key]; ok {
				found = append(found, differences(b[key], value, at+"."+key)...)
			} else {
				found = append(found, named(at+"."+key)+" is gone")
			}
		}
	case []any:
		a, ok := after.([]any)
		if !ok || len(a) != len(b) {
			return []string{became(at, before, after)}
		}
		for i := range b {
			found = append(found, differences(b[i], a[i], at+"[]")...)
		}
	default:
		if before != after {
			return []string{became(at, before, after)}
		}
	}
	return found
}

func became(at string, before, after any) string {
	return fmt.Sprintf("%s is %s and was %s", named(at), text(after), text(before))
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// added lists what after has and before does not have.
func added(before, after any, at string) (found []string) {
	switch a := after.(type) {
	case map[string]any:
		b, _ := before.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(a)) {
			if value, ok := b[key]; ok {
				found = append(found, added(value, a[key], at+"."+key)...)
			} else {
				found = append(found, named(at+"."+key))
			}
		}
	case []any:
		b, _ := before.([]any)
		for i := range min(len(a), len(b)) {
			found = append(found, added(b[i], a[i], at+"[]")...)
		}
	}
	return found
}

// lost lists what before has and after does not have. Empty values may be missing.
func lost(before, after any) []string { return added(after, withoutEmpty(before), "") }

func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		full := map[string]any{}
		for key, value := range v {
			if value = withoutEmpty(value); !empty(value) {
				full[key] = value
			}
		}
		return full
	case []any:
		full := make([]any, len(v))
		for i := range v {
			full[i] = withoutEmpty(v[i])
		}
		return full
	default:
		return v
	}
}

func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	default:
		return v == nil || v == false || v == "" || v == json.Number("0")
	}
}

// named returns how messages show a place in a document.
func named(at string) string {
	if at == "" {
		return "the whole"
	}
	return strings.TrimPrefix(at, ".")
}

// roundings lists the integers of before that after contains only as rounded to a float64.
func roundings(before, after []byte) (found []string) {
	old, now, isJSON := parse(before, after)
	if !isJSON {
		return nil
	}
	have := numbers(now)
	for n := range numbers(old) {
		exact, err := strconv.ParseInt(n, 10, 64)
		double := float64(exact)
		if err != nil || have[n] || int64(double) == exact {
			continue
		}
		for _, rounded := range []string{text(double), strconv.FormatInt(int64(double), 10)} {
			if have[rounded] {
				found = append(found, n+" to "+rounded)
				break
			}
		}
	}
	slices.Sort(found)
	return found
}

// numbers returns all numbers of a document, as they are written there.
func numbers(v any) map[string]bool {
	found := map[string]bool{}
	switch v := v.(type) {
	case json.Number:
		found[v.String()] = true
	case map[string]any:
		for _, value := range v {
			maps.Copy(found, numbers(value))
		}
	case []any:
		for _, value := range v {
			maps.Copy(found, numbers(value))
		}
	}
	return found
}
