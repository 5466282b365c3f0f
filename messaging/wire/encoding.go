package wire

import "strings"

const hexDigits = "0123456789ABCDEF"

// encode percent-encodes a value, if the binding asks for that (CloudEvents HTTP binding, section 3.1.3.2).
func (f *Format) encode(value string) string {
	if !f.binding.Encodes {
		return value
	}
	return percent(value, isPlainValue)
}

// encodeName percent-encodes the name of a property, if the binding asks for that.
func (f *Format) encodeName(name string) string {
	if !f.binding.Encodes {
		return name
	}
	return percent(name, isToken)
}

// decode is the reverse of encode and encodeName. A percent sign without two hexadecimal digits stays as it is.
func (f *Format) decode(text string) string {
	if !f.binding.Encodes || !strings.Contains(text, "%") {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if c, ok := hexByte(text[i:]); ok {
			b.WriteByte(c)
			i += 2
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// percent replaces each byte that is not plain by %XX.
func percent(text string, plain func(c byte) bool) string {
	n := 0
	for i := range len(text) {
		if !plain(text[i]) {
			n++
		}
	}
	if n == 0 {
		return text
	}
	b := make([]byte, 0, len(text)+2*n)
	for i := range len(text) {
		if c := text[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}

func isPlainValue(c byte) bool { return c > ' ' && c <= '~' && c != '"' && c != '%' }

func isToken(c byte) bool {
	return isAlphanumeric(c) || strings.IndexByte("!#$&'*+-.^_`|~", c) >= 0
}

func isAlphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// hexByte returns the byte that %XX at the beginning of text stands for.
func hexByte(text string) (c byte, ok bool) {
	if len(text) < 3 || text[0] != '%' {
		return 0, false
	}
	return hexPair(text[1], text[2])
}

func hexPair(high, low byte) (c byte, ok bool) {
	h, okHigh := hexDigit(high)
	l, okLow := hexDigit(low)
	return h<<4 | l, okHigh && okLow
}

func hexDigit(c byte) (n byte, ok bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	default:
		return 0, false
	}
}
