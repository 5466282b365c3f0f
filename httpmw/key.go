package httpmw

import (
	"fmt"
	"strings"

	"github.com/oncebox/oncebox/idempotency"
)

// The reasons for which a key is refused, as the client reads them. They do not repeat the client's text.
const (
	reasonLines     = "There is more than one Idempotency-Key line."
	reasonEmpty     = "The Idempotency-Key is empty."
	reasonLong      = "The Idempotency-Key is longer than 255 characters."
	reasonRaw       = `An Idempotency-Key has visible ASCII characters, except quotes and commas.`
	reasonQuotes    = `The Idempotency-Key must be in double quotes.`
	reasonMalformed = `A quoted Idempotency-Key has ASCII characters, \" and \\, and ends with its closing quote.`
)

// keyRule holds the configured rules for keys, in addition to the fixed ones.
type keyRule struct {
	strict   bool // in quotes, as the draft of the header has it
	shortest int  // bytes
}

// parse returns the key in the lines of an Idempotency-Key header, or the reason why there is none. A key may be
// written as it is, or as a string of RFC 9651, in quotes with \" and \\ escaped; both are the same key. A raw key has
// no commas: one would mean that a proxy has joined two lines.
func (rule keyRule) parse(lines []string) (key, reason string) {
	if len(lines) != 1 {
		return "", reasonLines
	}
	key = strings.Trim(lines[0], " \t")
	switch {
	case strings.HasPrefix(key, `"`):
		if key, reason = unquote(key); reason != "" {
			return "", reason
		}
	case rule.strict && key != "":
		return "", reasonQuotes
	case strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == ',' }):
		return "", reasonRaw
	}
	switch {
	case key == "":
		return "", reasonEmpty
	case len(key) > idempotency.MaxKey:
		return "", reasonLong
	case len(key) < rule.shortest:
		return "", fmt.Sprintf("The Idempotency-Key is shorter than %d characters.", rule.shortest)
	}
	return key, ""
}

func unquote(line string) (key, reason string) {
	var b strings.Builder
	for i := 1; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '"' && i == len(line)-1:
			return b.String(), ""
		case c == '\\' && i+1 < len(line) && (line[i+1] == '"' || line[i+1] == '\\'):
			i++
			c = line[i]
		case c < ' ' || c > '~' || c == '"' || c == '\\':
			return "", reasonMalformed
		}
		b.WriteByte(c)
	}
	return "", reasonMalformed
}
