package plot

import (
	"math"
	"time"

	"github.com/oncebox/oncebox/console/internal/words"
)

// clock formats a time of day, in UTC.
func clock(at time.Time) string { return at.UTC().Format("15:04") }

func wholeNumber(v float64) string {
	if v < 10 && v != math.Trunc(v) {
		return decimal(v)
	}
	return words.Group(int64(math.Round(v)))
}

// PerSecond writes a rate.
func PerSecond(v float64) string {
	switch {
	case v == 0:
		return "0/s"
	case v < 0.1:
		return decimal(v*60) + "/min"
	default:
		return wholeNumber(v) + "/s"
	}
}

// inSeconds writes a number of seconds.
func inSeconds(v float64) string {
	if v == 0 {
		return "0 s"
	}
	return words.Short(time.Duration(v * float64(time.Second)))
}

// roundNumber returns the least of 2, 4, 10, 20, 40, 100 and so on that is not less than a number. Half of it is a whole number, too.
func roundNumber(highest float64) float64 {
	for unit := 1.0; ; unit *= 10 {
		for _, step := range []float64{2, 4, 10} {
			if highest <= step*unit {
				return step * unit
			}
		}
	}
}

// roundSeconds returns a time that people count in, and that is not less than a number of seconds.
func roundSeconds(highest float64) float64 {
	for _, top := range []float64{2, 10, 20, 60, 120, 600, 1200, 3600, 2 * 3600, 6 * 3600, 12 * 3600, 24 * 3600, 48 * 3600} {
		if highest <= top {
			return top
		}
	}
	return roundNumber(highest/86400) * 86400
}

// roundRate is roundNumber for rates, which are often small.
func roundRate(highest float64) float64 {
	if highest <= 0.2 {
		return 0.2
	}
	if highest <= 1 {
		return 1
	}
	return roundNumber(highest)
}
