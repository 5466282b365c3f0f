package httpmw

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"unicode/utf8"
)

const maxJSONDepth = 1000

var errNotCanonical = errors.New("httpmw: no canonical form")

// canonicalJSON returns the one form that all spellings of a JSON text share: members sorted, no white space, numbers as
// they were written. false: it has none, because it is no JSON, a name occurs twice in an object, so that readers may
// disagree about what it says, or it is nested too deep.
func canonicalJSON(text []byte) ([]byte, bool) {
	if !utf8.Valid(text) {
		return nil, false // the decoder would make different bytes the same replacement character
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	out, err := appendValue(make([]byte, 0, len(text)), dec, 0)
	if err != nil {
		return nil, false
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, false
	}
	return out, true
}

func appendValue(out []byte, dec *json.Decoder, depth int) ([]byte, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		if depth == maxJSONDepth {
			return nil, errNotCanonical
		}
		if v == '[' {
			return appendArray(out, dec, depth+1)
		}
		return appendObject(out, dec, depth+1)
	case json.Number:
		return append(out, v...), nil
	default: // a string, a boolean or null
		encoded, err := json.Marshal(v)
		return append(out, encoded...), err
	}
}

func appendArray(out []byte, dec *json.Decoder, depth int) (_ []byte, err error) {
	out = append(out, '[')
	for first := true; dec.More(); first = false {
		if !first {
			out = append(out, ',')
		}
		if out, err = appendValue(out, dec, depth); err != nil {
			return nil, err
		}
	}
	_, err = dec.Token() // the closing bracket
	return append(out, ']'), err
}

func appendObject(out []byte, dec *json.Decoder, depth int) ([]byte, error) {
	members := map[string][]byte{}
	var names []string
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // the decoder allows nothing else here
		if _, twice := members[name]; twice {
			return nil, errNotCanonical
		}
		if members[name], err = appendValue(nil, dec, depth); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	out = append(out, '{')
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		encoded, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, encoded...), ':'), members[name]...)
	}
	_, err := dec.Token() // the closing brace
	return append(out, '}'), err
}
