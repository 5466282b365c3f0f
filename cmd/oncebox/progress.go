package main

import (
	"fmt"
	"io"
)

// progress shows on a terminal how far a long command is.
type progress struct {
	to   io.Writer // nil: nobody looks
	verb string
	of   int64
}

func (s *session) progress(verb string, of int64) *progress {
	p := &progress{verb: verb, of: of}
	if s.shows {
		p.to = s.errs
	}
	return p
}

const barWidth = 30

func (p *progress) show(done int64) {
	if p.to == nil || p.of == 0 {
		return
	}
	full := int(min(done, p.of) * barWidth / p.of)
	bar := make([]byte, barWidth)
	for n := range bar {
		bar[n] = '.'
		if n < full {
			bar[n] = '#'
		}
	}
	fmt.Fprintf(p.to, "\r[%s] %d of %d %s", bar, done, p.of, p.verb)
}

// end leaves the line.
func (p *progress) end() {
	if p.to != nil {
		fmt.Fprintln(p.to)
	}
}
