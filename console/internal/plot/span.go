package plot

import "time"

// Span is the time that the plots of a page cover.
type Span struct {
	Name, Value string // Value is that of the parameter span; "" is the default
	Length      time.Duration
	step        time.Duration // of a column
	bar         time.Duration // of a column of a small plot
}

// Spans are the times that an operator can choose. The first one is the default.
func Spans() []Span {
	return []Span{
		{"1 hour", "", time.Hour, time.Minute, 3 * time.Minute},
		{"24 hours", "24h", 24 * time.Hour, 10 * time.Minute, time.Hour},
	}
}

// SpanOf returns the span with this value, or else the default.
func SpanOf(value string) Span {
	for _, s := range Spans() {
		if s.Value == value {
			return s
		}
	}
	return Spans()[0]
}
