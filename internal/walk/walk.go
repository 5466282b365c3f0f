package walk

import (
	"path"
	"slices"
	"strings"
)

// Stop is a function on the way.
type Stop struct {
	File  string // from the module's root
	Func  string
	Lines int // of the function, the first and the last included
}

func (s Stop) String() string { return s.File + " " + s.Func }

// Way is what happens to one event, in three stretches. A function is in a stretch once, where it was entered first.
type Way struct {
	Write   []Stop // from Save to COMMIT
	Relay   []Stop // from the notification to the note that the event is published
	Receive []Stop // from the message to its acknowledgement
}

// All returns the three stretches, one behind the other.
func (w Way) All() []Stop { return slices.Concat(w.Write, w.Relay, w.Receive) }

// machinery are the packages below all others: a reader who follows the way of an event can rely on their documentation.
var machinery = []string{ //nolint:gochecknoglobals // a constant
	"internal/backoff", "internal/otelx", "internal/pgerr", "internal/pgsql", "internal/quietlog",
}

// shortest is the length in lines from which on a function is read at its own place. The name of a shorter one says it all.
const shortest = 15

// Read returns the functions that a reader of the way opens: those of at least 15 lines, without the machinery.
func (w Way) Read() (list []Stop) {
	for _, s := range w.All() {
		if s.Lines >= shortest && !slices.Contains(machinery, path.Dir(s.File)) {
			list = append(list, s)
		}
	}
	return list
}

// Figures say how hard a list of functions is to follow.
type Figures struct {
	Calls   int
	Files   int
	Returns int // to a file that was left before
}

// FiguresOf counts.
func FiguresOf(stops []Stop) (f Figures) {
	seen, last := map[string]bool{}, ""
	for _, s := range stops {
		if s.File != last && seen[s.File] {
			f.Returns++
		}
		seen[s.File], last = true, s.File
	}
	f.Calls, f.Files = len(stops), len(seen)
	return f
}

// String has a line for each function.
func (w Way) String() string {
	var b strings.Builder
	for _, stretch := range []struct {
		name  string
		stops []Stop
	}{{"write", w.Write}, {"relay", w.Relay}, {"receive", w.Receive}} {
		b.WriteString("# " + stretch.name + "\n")
		for _, s := range stretch.stops {
			b.WriteString(s.String() + "\n")
		}
	}
	return b.String()
}
