// Package event stands for the real one.
package event

type Event interface{ EventType() string }

type Recorder struct{ events []Event }

func (r *Recorder) Record(e Event) { r.events = append(r.events, e) }
