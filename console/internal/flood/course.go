package flood

import (
	"cmp"
	"time"

	"github.com/oncebox/oncebox/console/internal/trend"
	"github.com/oncebox/oncebox/console/internal/words"
	"github.com/oncebox/oncebox/inbox/state"
	"github.com/oncebox/oncebox/messaging/count"
	"github.com/oncebox/oncebox/operator"
)

// Course is how the number of messages changes that wait for a consumer, at all of its topics.
type Course struct {
	name      string
	topics    int
	messages  int64
	precision count.Precision
	trend     trend.Trend
}

// CourseOf returns the course of a consumer with its history. While a broker does not answer, it has no trend.
func CourseOf(c *state.Consumer, h *operator.History, now time.Time) *Course {
	course, known := &Course{name: c.Consumer, topics: len(c.Topics)}, true
	for n := range c.Topics {
		w := &c.Topics[n].Waiting
		course.messages, course.precision, known = course.messages+w.Messages, max(course.precision, w.Precision), known && w.Known
	}
	if known {
		course.trend = trend.Of(h, course.messages, now)
	}
	return course
}

// Text says whether the number rises or falls, how fast and until when, as in "falling by 185 a second, so nothing waits in about 3 min 32 s if it goes on
// like that". "": that is not known, or nothing waits.
func (c *Course) Text() string {
	text := c.trend.Word
	if text == "" || c.messages == 0 {
		return ""
	}
	if c.trend.PerSecond > 0 && c.precision != count.AtLeast { // of a broker that counts batches, nobody knows how many messages these were
		text += " by about " + perSecond(c.trend.PerSecond) + " a second"
	}
	if left := c.trend.Left(c.messages); left > 0 {
		text += ", so nothing waits in about " + words.Short(left) + " if it goes on like that"
	}
	return text
}

// sentence is the course of the only consumer of a flood, with a space before it, "" without a trend.
func (c *Course) sentence() string {
	course := c.Text()
	switch {
	case course == "":
		return ""
	case c.topics > 1:
		return " The number at all its topics is " + course + "."
	default:
		return " The number is " + course + "."
	}
}

// ofSeveral is the course of the slowest consumer of a flood, with a space before it.
func (c *Course) ofSeveral() string {
	text := " The slowest is " + c.name + ": " + c.precision.Words() + words.Counted(c.messages, "message waits", "messages wait") + " for it"
	if c.topics > 1 {
		text += " at all its topics"
	}
	if course := c.Text(); course != "" {
		text += ", and the number is " + course
	}
	return text + "."
}

// compareSlowness returns a number above 0 if a is slower than b: it catches up later or not at all, or more messages wait for it.
func compareSlowness(a, b *Course) int {
	return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.trend.Left(a.messages), b.trend.Left(b.messages)), cmp.Compare(a.messages, b.messages))
}

// rank is higher for a consumer that does not catch up.
func (c *Course) rank() int {
	switch c.trend.Word {
	case trend.Rising:
		return 2
	case trend.Falling:
		return 0
	default:
		return 1
	}
}
