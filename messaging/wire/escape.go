package wire

import "strings"

// escapeLength is the length of an escaped byte: _x2A_.
const escapeLength = 5

// Escape returns the name in letters and digits of ASCII, "-", "_", and the characters of more. Each other byte becomes
// _xHH_, with two hexadecimal digits; so does an "_" before an "x", so that two different names never become the same. Other names stay as they are.
//
// Brokers allow different characters in the names of topics, streams, subjects and queues, and oncebox allows almost all in a topic.
func Escape(name, more string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		plain := isAlphanumeric(c) || c == '-' || c == '_' || strings.IndexByte(more, c) >= 0
		if plain && !strings.HasPrefix(name[i:], "_x") {
			b.WriteByte(c)
			continue
		}
		b.WriteString("_x")
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
		b.WriteByte('_')
	}
	return b.String()
}

// Unescape is the reverse of [Escape].
func Unescape(name string) string {
	if !strings.Contains(name, "_x") {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if c, ok := escaped(name[i:]); ok {
			b.WriteByte(c)
			i += escapeLength - 1
			continue
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

// escaped returns the byte that an escape at the beginning of text stands for.
func escaped(text string) (c byte, ok bool) {
	if len(text) < escapeLength || text[0] != '_' || text[1] != 'x' || text[4] != '_' {
		return 0, false
	}
	return hexPair(text[2], text[3])
}
