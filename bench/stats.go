package main

import (
	"fmt"
	"math"
	"slices"
)

// sample is one figure, taken in several rounds.
type sample []float64

// median returns the figure in the middle, the mean of the two middle ones if their number is even, and NaN for an empty sample.
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

// most returns the largest figure, and NaN for an empty sample.
func (s sample) most() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	return slices.Max(s)
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

// series is what was measured of one contender, one figure per round.
type series struct {
	rates  sample
	usage  []usage
	allocs sample // of this program per transaction, where it matters
	log    sample // bytes of WAL per event, where it was measured
}

func (s *series) add(rate float64, cpu usage) {
	s.rates = append(s.rates, rate)
	s.usage = append(s.usage, cpu)
}

// cpu returns the medians of the parts.
func (s *series) cpu() usage {
	if len(s.usage) == 0 {
		return nil
	}
	out := make(usage, len(s.usage[0]))
	for part := range out {
		var all sample
		for _, u := range s.usage {
			all = append(all, u[part])
		}
		out[part] = all.median()
	}
	return out
}

// cpuOver divides round by round what all parts took together.
func (s *series) cpuOver(floor *series) sample {
	sum := func(u usage) (all float64) {
		for _, part := range u {
			all += part
		}
		return all
	}
	out := make(sample, len(s.usage))
	for i := range s.usage {
		out[i] = sum(s.usage[i]) / sum(floor.usage[i])
	}
	return out
}

// latest returns the rate of the latest round.
func (s *series) latest() float64 { return s.rates[len(s.rates)-1] }
