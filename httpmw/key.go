package httpmw

import (
	"fmt"
	"strings"

	"github.com/oncebox/oncebox/idempotency"
)

// The reasons for refusing a key, as the client reads them. They do not quote the key, because it could contain anything.
const (
	reasonLines     = "The request has more than one Idempotency-Key header."
	reasonEmpty     = "The Idempotency-Key is empty."
	reasonLong      = "The Idempotency-Key is longer than 255 characters."
	reasonRaw       = `An Idempotency-Key may contain visible ASCII characters except quotes and commas.`
	reasonQuotes    = `The Idempotency-Key must be in double quotes.`
	reasonMalformed = `A quoted Idempotency-Key may contain ASCII characters and the escapes \" and \\, and nothing may follow its closing quote.`
)

// keyRule has the configured rules for keys; parse has the fixed ones.
type keyRule struct {
	strict   bool // only keys in quotes, as in the draft of the header
	shortest int  // least number of bytes
}

// parse returns the key from the lines of an Idempotency-Key header, or the reason why it is refused. A key may be written as it is, or as a string
// of RFC 9651: in quotes, with \" and \\ escaped. Both spellings are the same key. A key without quotes may not contain a comma, because a proxy that
// joins two header lines would have put it there.
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

// unquote reads a string of RFC 9651, section 3.3.3. Parameters, which the RFC allows behind it, are refused.
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
