package main

import (
	"fmt"
	"math"
	"slices"
)

// sample is one figure, taken in several rounds.
type sample []float64

// median returns the one in the middle, the mean of both if there are two, and NaN if there is none.
func (s sample) median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// over divides round by round: only figures of one round can be compared.
func (s sample) over(floor sample) sample {
	out := make(sample, len(s))
	for i := range s {
		out[i] = s[i] / floor[i]
	}
	return out
}

// ratio formats the median with the range: 0.85 [0.80-0.91].
func (s sample) ratio() string { return s.format("%.2f") }

// rate formats the median with the range: 4120 [3980-4205].
func (s sample) rate() string { return s.format("%.0f") }

func (s sample) format(verb string) string {
	if len(s) == 0 {
		return "-"
	}
	return fmt.Sprintf(verb+" ["+verb+"-"+verb+"]", s.median(), slices.Min(s), slices.Max(s))
}
