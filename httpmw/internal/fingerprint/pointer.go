package fingerprint

import (
	"errors"
	"fmt"
	"strings"
)

// pointers is a set of places in JSON texts, as a tree of member names. A nil leaf stands for the whole value at that place.
type pointers map[string]pointers

// parsePointers reads JSON pointers (RFC 6901).
func parsePointers(texts []string) (pointers, error) {
	root := pointers{}
	for _, text := range texts {
		if !strings.HasPrefix(text, "/") {
			return nil, fmt.Errorf("%q is not a JSON pointer to a member of the body: write /name, or /name/name for a member of a member", text)
		}
		names := strings.Split(text[1:], "/")
		at := root
		for i, name := range names {
			name, err := unescape(name)
			if err != nil {
				return nil, fmt.Errorf("%q is not a JSON pointer: %w", text, err)
			}
			below, known := at[name]
			// A pointer to a member of an excluded object changes nothing.
			if known && below == nil {
				break // a pointer to an object around this place is in the tree already
			}
			if i == len(names)-1 {
				at[name] = nil
				break
			}
			if below == nil {
				below = pointers{}
				at[name] = below
			}
			at = below
		}
	}
	return root, nil
}

// unescape refuses a ~ that is neither ~0 nor ~1 (RFC 6901, section 3): it is probably a mistake, and the pointer would
// silently exclude nothing.
func unescape(name string) (string, error) {
	if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(name), "~") {
		return "", errors.New("a name must have ~0 in place of ~, and ~1 in place of /")
	}
	return strings.NewReplacer("~0", "~", "~1", "/").Replace(name), nil
}

// at goes one member down. whole reports that the value there is meant with everything in it.
func (p pointers) at(name string) (below pointers, whole bool) {
	below, known := p[name]
	return below, known && below == nil
}
