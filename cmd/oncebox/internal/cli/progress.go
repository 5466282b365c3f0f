package cli

import (
	"fmt"
	"io"
)

// Progress shows the progress of a long command on a terminal.
type Progress struct {
	to   io.Writer // nil: there is no terminal
	verb string
	Of   int64
}

// Progress begins to show how many of a total are done.
func (s *Session) Progress(verb string, of int64) *Progress {
	p := &Progress{verb: verb, Of: of}
	if s.Shows {
		p.to = s.Errs
	}
	return p
}

const barWidth = 30

// Show writes over the line with the number that is done by now. Without a terminal it writes nothing: a
// log file needs no bars.
func (p *Progress) Show(done int64) {
	if p.to == nil || p.Of == 0 {
		return
		// More may be done than were counted before, because letters can arrive meanwhile. The bar stays full then.
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

// End ends the line, so that the next output begins on a new one.
func (p *Progress) End() {
	if p.to != nil {
		fmt.Fprintln(p.to)
	}
}
