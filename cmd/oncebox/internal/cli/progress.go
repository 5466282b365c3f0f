package cli

import (
	"fmt"
	"io"
)

// Progress shows on a terminal how far a long command is.
type Progress struct {
	to   io.Writer // nil: nobody looks
	verb string
	Of   int64
}

// Progress begins to show how many of so many are done.
func (s *Session) Progress(verb string, of int64) *Progress {
	p := &Progress{verb: verb, Of: of}
	if s.Shows {
		p.to = s.Errs
	}
	return p
}

const barWidth = 30

// Show shows that so many are done.
func (p *Progress) Show(done int64) {
	if p.to == nil || p.Of == 0 {
		return
	}
	full := int(min(done, p.Of) * barWidth / p.Of)
	bar := make([]byte, barWidth)
	for n := range bar {
		bar[n] = '.'
		if n < full {
			bar[n] = '#'
		}
	}
	fmt.Fprintf(p.to, "\r[%s] %d of %d %s", bar, done, p.Of, p.verb)
}

// End leaves the line.
func (p *Progress) End() {
	if p.to != nil {
		fmt.Fprintln(p.to)
	}
}
