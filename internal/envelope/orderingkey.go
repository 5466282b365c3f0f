package envelope

import "strings"

// ExplicitKey returns the ordering key that an event was given, of the value that event.Envelope.OrderingKey made of it, and ""
// if that was made of an aggregate. Both begin with the tenant; an explicit key follows it as the only other part.
func ExplicitKey(orderingKey string) string {
	key, found := behindPart(orderingKey)
	if _, more := behindPart(key); !found || more {
		return ""
	}
	if !strings.Contains(key, `\`) {
		return key
	}
	return strings.NewReplacer(`\\`, `\`, `\|`, `|`).Replace(key)
}

// behindPart returns what is behind the first "|" that is no part's own.
func behindPart(s string) (rest string, found bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++ // what it escapes
		case '|':
			return s[i+1:], true
		}
	}
	return "", false
}
