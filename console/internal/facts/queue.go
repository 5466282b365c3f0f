package facts

import (
	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/event"
)

// MostBehind is how many events or messages behind a dead letter are counted, and mostNamed how many of them are named.
const (
	MostBehind = 100
	mostNamed  = 10
)

// Queue is what waits behind a dead letter that holds its key. Count is its number with its noun.
type Queue struct {
	Count string
	First []Waiter
	More  bool // there are others than First
}

// Waiter is an event or message that waits. Href is the address of its life.
type Waiter struct{ Type, ID, Href string }

// QueueOf returns the queue behind a dead letter. all has up to one more than [MostBehind].
func QueueOf(all []event.Envelope, source string) *Queue {
	q := &Queue{Count: words.Counted(int64(len(all)), "event or message waits", "events or messages wait"), More: len(all) > mostNamed}
	if len(all) > MostBehind {
		q.Count = "more than " + words.Counted(MostBehind, "", "events or messages wait")
	}
	for n := range all[:min(len(all), mostNamed)] {
		e := &all[n]
		q.First = append(q.First, Waiter{e.Type, e.ID, frame.Event(e.ID, source)})
	}
	return q
}
