package fingerprint

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxJSONDepth limits the work: members are moved when their object is sorted, so a deeply nested value is moved once for each level.
const maxJSONDepth = 64

var errNotCanonical = errors.New("fingerprint: the body is not JSON that can be compared member by member")

// canonicalJSON returns the one form that all spellings of a JSON text share: members sorted, no white space, numbers as they were written, and
// without the values that are excluded. It returns false if there is no such form: the text is not JSON, it is nested too deep, or a name occurs
// twice in an object, so that readers may disagree about its meaning.
func canonicalJSON(text []byte, exclude pointers) ([]byte, bool) {
	// The decoder would replace invalid bytes, and halves of UTF-16 pairs, by one character, so that different texts would look the same.
	if !utf8.Valid(text) || !json.Valid(text) {
		return nil, false
	}
	c := canonical{text: text, out: make([]byte, 0, len(text))}
	if c.value(0, exclude) != nil {
		return nil, false
	}
	return c.out, true
}

// canonical reads a text that is valid JSON, and writes its canonical form.
type canonical struct {
	text    []byte // the part that was not read yet
	out     []byte
	scratch []byte
}

// next skips white space and returns the first byte behind it, which it leaves unread.
func (c *canonical) next() byte {
	for {
		switch b := c.text[0]; b {
		case ' ', '\t', '\r', '\n':
			c.text = c.text[1:]
		default:
			return b
		}
	}
}

// skip drops one byte. The caller knows from JSON's grammar which it is.
func (c *canonical) skip() {
	c.next()
	c.text = c.text[1:]
}

// value writes one value in canonical form. Numbers are not normalized: 1.0 and 1 may mean different things
// to the service.
func (c *canonical) value(depth int, exclude pointers) error {
	switch c.next() {
	case '{', '[':
		if depth == maxJSONDepth {
			return errNotCanonical
		}
		if c.text[0] == '[' {
			return c.array(depth+1, exclude)
		}
		return c.object(depth+1, exclude)
	case '"':
		_, err := c.string()
		return err
	// The grammar was checked before, so the token ends at the first of these bytes.
	default: // a number, a boolean or null
		end := bytes.IndexAny(c.text, " \t\r\n,]}")
		if end < 0 {
			end = len(c.text)
		}
		c.out, c.text = append(c.out, c.text[:end]...), c.text[end:]
		return nil
	}
}

// string reads a string, writes it as [json.Marshal] does, and returns its value.
func (c *canonical) string() (string, error) {
	// The text is valid JSON, so the closing quote exists, and a backslash always has a byte behind it.
	end := 1
	for c.text[end] != '"' {
		if c.text[end] == '\\' {
			end++
		}
		end++
	}
	raw := c.text[:end+1]
	c.text = c.text[end+1:]
	// Most strings have no escape, and are equal to what json.Marshal writes. This saves decoding and encoding them.
	if !bytes.ContainsAny(raw, "\\<>&\u2028\u2029") {
		c.out = append(c.out, raw...)
		return string(raw[1:end]), nil
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return "", err
	}
	if strings.ContainsRune(text, utf8.RuneError) && bytes.Contains(raw, []byte(`\u`)) {
		return "", errNotCanonical // the replacement character may stand for half of a pair, and all halves would look the same
	}
	encoded, err := json.Marshal(text)
	c.out = append(c.out, encoded...)
	return text, err
}

// array keeps the order, which has a meaning in JSON. Excluded elements are cut out after they were read, because the
// reader must get behind them.
func (c *canonical) array(depth int, exclude pointers) error {
	c.skip()
	c.out = append(c.out, '[')
	first := len(c.out)
	for i := 0; c.next() != ']'; i++ {
		if i > 0 {
			c.skip() // the comma
		}
		begin := len(c.out)
		if begin > first {
			c.out = append(c.out, ',')
		}
		below, whole := exclude.at(strconv.Itoa(i))
		if err := c.value(depth, below); err != nil {
			return err
		}
		if whole {
			c.out = c.out[:begin]
		}
	}
	c.skip()
	c.out = append(c.out, ']')
	return nil
}

// member is one member of an object, and the place where its text begins in the output.
type member struct {
	name       string
	begin, end int
	excluded   bool
}

// object writes the members as they come, and moves them afterwards only if their order or an exclusion demands it.
func (c *canonical) object(depth int, exclude pointers) error {
	c.skip()
	c.out = append(c.out, '{')
	first := len(c.out)
	var members []member
	for c.next() != '}' {
		if len(members) > 0 {
			c.skip() // the comma
			c.next()
		}
		m := member{begin: len(c.out)}
		var err error
		if m.name, err = c.string(); err != nil {
			return err
		}
		c.skip()
		c.out = append(c.out, ':')
		var below pointers
		below, m.excluded = exclude.at(m.name)
		if err := c.value(depth, below); err != nil {
			return err
		}
		c.out = append(c.out, ',')
		m.end = len(c.out)
		members = append(members, m)
	}
	c.skip()
	inOrder := func(a, b member) int { return strings.Compare(a.name, b.name) }
	if exclude != nil || !slices.IsSortedFunc(members, inOrder) {
		slices.SortFunc(members, inOrder)
		c.move(first, members)
	}
	// After the sort equal names are neighbours. Which of them counts differs between readers (RFC 8259, section 4), so
	// such a body is compared byte for byte.
	for i := 1; i < len(members); i++ {
		if members[i].name == members[i-1].name {
			return errNotCanonical
		}
	}
	if len(c.out) > first {
		c.out = c.out[:len(c.out)-1] // removes the last comma
	}
	c.out = append(c.out, '}')
	return nil
}

// move sorts the written members, which begin at first in the output, and drops the excluded ones.
func (c *canonical) move(first int, members []member) {
	c.scratch = append(c.scratch[:0], c.out[first:]...)
	c.out = c.out[:first]
	for _, m := range members {
		if !m.excluded {
			c.out = append(c.out, c.scratch[m.begin-first:m.end-first]...)
		}
	}
}
