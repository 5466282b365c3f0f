package walk

import (
	"path"
	"slices"
	"strings"
)

// Stop is a function on the way of an event.
type Stop struct {
	File  string // path from the module's root
	Func  string
	Lines int // length of the function
}

func (s Stop) String() string { return s.File + " " + s.Func }

// Way is the way of one event, in three stretches. A function is listed once in a stretch, at its first call.
type Way struct {
	Write   []Stop // from Save to COMMIT
	Relay   []Stop // from the notification of the commit to the record that the event is published
	Receive []Stop // from the received message to its acknowledgement
}

// All returns the three stretches as one list.
func (w Way) All() []Stop { return slices.Concat(w.Write, w.Relay, w.Receive) }

// machinery are packages that a reader of the way does not have to read: their documentation is enough.
var machinery = []string{ //nolint:gochecknoglobals // a constant
	"internal/backoff", "internal/otelx", "internal/pgerr", "internal/pgsql", "internal/quietlog",
}

// shortest is the length in lines from which a function counts. For a shorter one the name is enough.
const shortest = 15

// Read returns the functions that a reader of the way has to open: functions of at least 15 lines outside
// of the machinery.
func (w Way) Read() (list []Stop) {
	for _, s := range w.All() {
		if s.Lines >= shortest && !slices.Contains(machinery, path.Dir(s.File)) {
			list = append(list, s)
		}
	}
	return list
}

// Figures measure how hard a list of functions is to follow.
type Figures struct {
	Calls   int
	Files   int
	Returns int // how often the way returns to a file that it had left
}

// FiguresOf counts the figures of a list of stops.
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
