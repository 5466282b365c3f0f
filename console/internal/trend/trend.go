package trend

import (
	"time"

	"github.com/oncebox/oncebox/operator"
)

const (
	// points is how many full minutes are compared.
	points = 4
	// little is the part of the largest number by which the numbers may differ and count as the same, and few the same for small numbers.
	little = 0.05
	few    = 2
	// alike is how many times as large as the smallest step the largest may be if the number changes evenly.
	alike = 2
)

// Words say how a number changes.
const (
	Rising  = "rising"
	Falling = "falling"
	Steady  = "steady"
)

// Trend is how a number changes.
type Trend struct {
	// Word is one of [Rising], [Falling] and [Steady], "" if the number goes up and down, or if its minutes are not known.
	Word string
	// PerSecond is the change in a second, above 0. 0: the number is steady, or has not changed evenly.
	PerSecond float64
}

// Of returns the trend of the waiting events or messages of a history. present is their number now.
func Of(h *operator.History, present int64, now time.Time) (t Trend) {
	numbers := minutes(h, now)
	if len(numbers) < points {
		return t
	}
	numbers = append(numbers, present)
	ups, downs, lowest, highest := 0, 0, present, present
	for _, n := range numbers {
		lowest, highest = min(lowest, n), max(highest, n)
	}
	same := max(int64(little*float64(highest)), few)
	for n := range points {
		switch step := numbers[n+1] - numbers[n]; {
		case step > same/2:
			ups++
		case step < -same/2:
			downs++
		}
	}
	switch {
	case highest-lowest <= same:
		t.Word = Steady
	case ups > 1 && downs == 0:
		t.Word, t.PerSecond = Rising, rate(numbers, 1)
	case downs > 1 && ups == 0:
		t.Word, t.PerSecond = Falling, rate(numbers, -1)
	}
	return t
}

// Left returns when the number will be 0 if it goes on like that. 0: it does not fall, or not evenly.
func (t Trend) Left(present int64) time.Duration {
	if t.Word != Falling || t.PerSecond <= 0 {
		return 0
	}
	return time.Duration(float64(present) / t.PerSecond * float64(time.Second))
}

// minutes returns the numbers of the last full minutes, the oldest first, and less of them if one is not known. The highest readings of minutes are about a
// minute apart if the number rises or falls.
func minutes(h *operator.History, now time.Time) (list []int64) {
	next := now.Truncate(time.Minute).Add(-points * time.Minute)
	for n := range h.Figures {
		f := &h.Figures[n]
		if f.At.Equal(next) && f.Span == time.Minute && f.Waiting != operator.Unknown && len(list) < points {
			list, next = append(list, f.Waiting), next.Add(time.Minute)
		}
	}
	return list
}

// rate returns by how much a number has changed in a second over the full minutes, 0 if it has not changed evenly. sign is 1 for a rise and -1 for a fall.
func rate(numbers []int64, sign int64) float64 {
	smallest, largest := sign*(numbers[1]-numbers[0]), int64(0)
	for n := range points - 1 {
		step := sign * (numbers[n+1] - numbers[n])
		smallest, largest = min(smallest, step), max(largest, step)
	}
	if smallest <= 0 || largest > alike*smallest {
		return 0
	}
	return float64(sign*(numbers[points-1]-numbers[0])) / ((points - 1) * time.Minute).Seconds()
}
