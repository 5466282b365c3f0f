package words

import (
	"fmt"
	"strconv"
	"time"
)

const day = 24 * time.Hour

// Stamp formats a time for people, in UTC.
func Stamp(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// Date formats the day of a time, in UTC.
func Date(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// Clock formats the time of day to the millisecond, in UTC.
func Clock(at time.Time) string { return at.UTC().Format("15:04:05.000") }

// Machine formats a time for the HTML attribute datetime.
func Machine(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// Since returns the time of day of a moment, with its date if that is not today's, and with seconds if it is less than a minute ago.
func Since(now, at time.Time) string {
	at = at.UTC()
	switch {
	case Date(at) != Date(now):
		return at.Format("2006-01-02 15:04")
	case now.Sub(at) < time.Minute:
		return at.Format(time.TimeOnly)
	default:
		return at.Format("15:04")
	}
}

// Field formats a time for a form field of type datetime-local.
func Field(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format("2006-01-02T15:04")
}

// Ago formats how long before or after now a time is.
func Ago(now, at time.Time) string {
	d := now.Sub(at)
	switch {
	case at.IsZero():
		return ""
	case d < 0 && d > -time.Second, d >= 0 && d < time.Second:
		return "now"
	case d < 0:
		return "in " + Short(-d)
	default:
		return Short(d) + " ago"
	}
}

// Due formats when something that waits for a time is due: in how long, or by how much it is overdue.
func Due(now, at time.Time) string {
	if late := now.Sub(at); late >= time.Second {
		return "overdue by " + Short(late)
	}
	return Ago(now, at)
}

// Short formats a duration with its largest unit, or the largest two. The parts stay on one line.
func Short(d time.Duration) string {
	switch {
	case d < time.Second:
		return unit(d.Milliseconds(), "ms")
	case d < time.Minute:
		return unit(int64(d/time.Second), "s")
	case d < 10*time.Minute:
		return two(d, time.Minute, "min", time.Second, "s")
	case d < time.Hour:
		return unit(int64(d/time.Minute), "min")
	case d < day:
		return two(d, time.Hour, "h", time.Minute, "min")
	case d < 10*day:
		return two(d, day, "d", time.Hour, "h")
	default:
		return unit(int64(d/day), "d")
	}
}

func two(d, large time.Duration, name string, small time.Duration, smallName string) string {
	text := unit(int64(d/large), name)
	if rest := d % large / small; rest > 0 {
		text += "\u00a0" + unit(int64(rest), smallName)
	}
	return text
}

// unit writes a number with its unit. The space does not break at the end of a line.
func unit(n int64, name string) string { return strconv.FormatInt(n, 10) + "\u00a0" + name }

// Later formats the time from one moment to the next: to the millisecond below a minute, because that is where latency is.
func Later(d time.Duration) string {
	if d < 0 {
		return "−" + Later(-d)
	}
	switch d = d.Round(time.Millisecond); {
	case d < time.Second:
		return unit(d.Milliseconds(), "ms")
	case d < time.Minute:
		return fmt.Sprintf("%.3f\u00a0s", d.Seconds())
	default:
		return Short(d)
	}
}
