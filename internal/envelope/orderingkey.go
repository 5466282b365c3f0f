package envelope

import "strings"

// ExplicitKey returns the ordering key that an event was given, of the value that event.Envelope.OrderingKey made of it, and ""
// if that was made of an aggregate. Both begin with the tenant; an explicit key follows it as the only other part.
func ExplicitKey(orderingKey string) string {
	_, key, found := cutPart(orderingKey)
	if _, _, more := cutPart(key); !found || more {
		return ""
	}
	if !strings.Contains(key, `\`) {
		return key
	}
	return strings.NewReplacer(`\\`, `\`, `\|`, `|`).Replace(key)
}

// cutPart slices s around the first "|" that is no part's own.
func cutPart(s string) (part, rest string, found bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++ // what it escapes
		case '|':
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}
