// Package span writes durations for people. A setting is a round number of days or hours, which time.Duration.String writes as 168h0m0s.
//
// Read first: span.go:Text.
package span

import (
	"fmt"
	"time"
)

// Text returns a duration of whole days or hours in that unit, such as "7 days", and others as time.Duration.String writes them.
func Text(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= day && d%day == 0:
		return counted(d/day, "day")
	case d >= time.Hour && d%time.Hour == 0:
		return counted(d/time.Hour, "hour")
	default:
		return d.String()
	}
}

func counted(n time.Duration, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}
