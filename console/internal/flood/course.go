package flood

import (
	"math"
	"time"

	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging/count"
)

// Course is how the number of messages that wait changes, between the last two answers of the broker.
type Course struct {
	messages  int64
	precision count.Precision
	change    float64 // of the messages, in a second
	unknown   bool    // for a subscription there are no two answers
	endless   bool    // of a subscription the number does not fall
	left      time.Duration
}

// CourseOf returns the course of all topics of a consumer.
func CourseOf(c *state.Consumer) *Course {
	all := &Course{}
	for n := range c.Topics {
		all.add(&c.Topics[n].Waiting)
	}
	return all
}

// add adds a subscription. A subscription for which nothing waits is worked off already.
func (c *Course) add(w *state.Waiting) {
	change, known := w.PerSecond()
	c.messages, c.precision, c.change, c.unknown = c.messages+w.Messages, max(c.precision, w.Precision), c.change+change, c.unknown || !known
	switch {
	case w.Messages == 0:
	case change < 0:
		c.left = max(c.left, time.Duration(float64(w.Messages)/-change*float64(time.Second)))
	default:
		c.endless = true
	}
}

// steadily is the part of a number by which it may change in a minute and count as the same.
const steadily = 0.05

// Text says whether the number rises or falls and how fast, as in "falling by 185 a second". "": that is not known, or nothing waits.
func (c *Course) Text() string {
	change := math.Abs(c.change)
	by := " by " + perSecond(change) + " a second"
	if c.precision == count.AtLeast {
		by = "" // the broker counts batches: nobody knows how many messages these were
	}
	switch {
	case c.unknown || c.messages == 0:
		return ""
	case change*time.Minute.Seconds() < steadily*float64(c.messages):
		return "steady"
	case c.change > 0:
		return "rising" + by
	case c.endless:
		return "falling" + by
	default:
		return "falling" + by + ", so nothing waits in about " + words.Short(c.left) + " if it goes on like that"
	}
}
