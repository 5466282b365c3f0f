package wire

import "fmt"

const (
	// KeptPayload is how much of the payload of an unreadable message is kept for the reader of its dead letter, in bytes.
	KeptPayload = 64 << 10
	// KeptProperties is how many bytes of the properties are kept in all, and keptProperty how many bytes one property may have to be kept.
	KeptProperties = 64 << 10
	keptProperty   = 4 << 10
)

// Oversize returns the reason why a message of size bytes is unreadable, empty if it is not larger than limit. setting names the setting of
// the adapter that has the limit. With a limit below 1 every message is readable.
func Oversize(size, limit int, setting string) string {
	if limit < 1 || size <= limit {
		return ""
	}
	return fmt.Sprintf("it has %d bytes, more than the %d of %s", size, limit, setting)
}

// partOf returns what is kept of an unreadable message: the beginning of its payload, and short properties, beginning with the properties that
// identify the message.
func (f *Format) partOf(r *Received) *Received {
	part := *r
	part.Payload = r.Payload[:min(len(r.Payload), KeptPayload)]
	part.Properties = map[string]string{}
	if len(r.Key) > keptProperty {
		part.Key = ""
	}
	room := KeptProperties
	for _, own := range []bool{true, false} {
		// Map order is random, so which of many short properties are kept differs. The identifying ones come first.
		for name, value := range r.Properties {
			if n := len(name) + len(value); f.own[name] == own && n <= min(room, keptProperty) {
				part.Properties[name] = value
				room -= n
			}
		}
	}
	return &part
}
