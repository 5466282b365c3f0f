package operator

import (
	"fmt"
	"time"

	"github.com/oncebox/oncebox/internal/span"
)

// Limit is when a consumer gives up a message that fails, see inbox.RetryPolicy. A field that is 0 or less sets no limit.
type Limit struct {
	// Attempts is the number of tries.
	Attempts int
	// For is how long a message is tried that fails, and ForBuild how long a message is kept that no build of the program knows yet.
	For, ForBuild time.Duration
}

// Text says how many tries of a message were counted, and when it becomes a dead letter. since is when it began to fail; zero: not known. Tries of a
// message that waits for a build are not counted.
func (l Limit) Text(attempts int, since time.Time) string {
	const end = ", then dead letter"
	if attempts == 0 {
		return l.until("waits for a build that knows it", l.ForBuild, since, end)
	}
	try := fmt.Sprintf("try %d", attempts)
	switch {
	case l.Attempts > 0 && l.For > 0 && !since.IsZero():
		return l.until(fmt.Sprintf("%s of %d, at most", try, l.Attempts), l.For, since, end)
	case l.Attempts > 0:
		return fmt.Sprintf("%s of %d", try, l.Attempts) + end
	default:
		return l.until(try, l.For, since, end)
	}
}

// Ahead says what becomes of a message that fails if nobody does anything: for how long it is tried, and what follows. attempts and since are those of
// [Limit.Text].
func (l Limit) Ahead(attempts int, since time.Time) string {
	const end = ", then it is a dead letter"
	switch {
	case attempts == 0:
		return l.until("it waits for a build that knows it", l.ForBuild, since, end)
	case l.Attempts > 0 && l.For > 0 && !since.IsZero():
		return l.until(fmt.Sprintf("tries go on, %d at most,", l.Attempts), l.For, since, end)
	case l.Attempts > 0:
		return fmt.Sprintf("tries go on, %d at most", l.Attempts) + end
	default:
		return l.until("tries go on", l.For, since, end)
	}
}

// until adds how long that goes on.
func (l Limit) until(text string, lasts time.Duration, since time.Time, end string) string {
	switch {
	case lasts <= 0:
		return text + ", without end"
	case since.IsZero():
		return text + ", for " + span.Text(lasts) + end
	default:
		return text + " until " + since.Add(lasts).UTC().Format("2006-01-02 15:04 UTC") + end
	}
}
