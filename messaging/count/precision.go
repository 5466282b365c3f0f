package count

import "fmt"

// Precision says how far to trust a number of messages. A larger value is less precise, so a sum has the largest value of its parts (max).
type Precision int

// The precisions.
const (
	Exact     Precision = iota // the number itself
	Estimated                  // computed from a part of the messages
	AtLeast                    // a lower bound, which may be far too low
)

// Words returns what precedes the number in a sentence, with a blank at the end: "about ", "at least ", or "" for an exact number.
func (p Precision) Words() string {
	return map[Precision]string{Estimated: "about ", AtLeast: "at least "}[p]
}

// String returns exact, estimated or at least.
func (p Precision) String() string {
	return map[Precision]string{Exact: "exact", Estimated: "estimated", AtLeast: "at least"}[p]
}

// MarshalText implements [encoding.TextMarshaler] with String.
func (p Precision) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It returns an error for a text that String does not return.
func (p *Precision) UnmarshalText(text []byte) error {
	for known := range AtLeast + 1 {
		if known.String() == string(text) {
			*p = known
			return nil
		}
	}
	return fmt.Errorf("count: precision %q is none of exact, estimated and at least", text)
}
