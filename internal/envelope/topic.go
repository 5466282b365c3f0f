package envelope

import "strings"

// absolute begins the name of a topic that gets no prefix. No stored topic contains it, see [event.ValidateTopic].
const absolute = "/"

// FullTopic returns the topic at the broker of a name in the program: the prefix is put before it. A name that begins with "/" is absolute: it gets no
// prefix and loses the slash. An empty name stays empty, so that it is refused.
func FullTopic(prefix, name string) string {
	if full, isAbsolute := strings.CutPrefix(name, absolute); isAbsolute || name == "" {
		return full
	}
	return prefix + name
}
